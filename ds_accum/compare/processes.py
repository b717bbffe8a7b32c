"""Processes that end with the comparison, however it ends: each in a session of its own, killed as a whole."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

__all__ = ["descendants", "end_of", "ended_by", "is_stopped", "kill", "start"]

_INTERRUPTING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def start(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    output: IO[bytes],
    errors: IO[bytes],
    when_we_die: signal.Signals = signal.SIGKILL,
) -> subprocess.Popen[bytes]:
    """Starts a command in a session of its own. On Linux it gets `when_we_die` should this process be killed.

    An interrupt that comes meanwhile waits: else it could strike where the process runs but nobody knows its id.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTING)
    try:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            preexec_fn=_prepared(blocked, when_we_die),
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _prepared(mask: set[Any], when_we_die: signal.Signals) -> Callable[[], None]:
    """What a child does before it becomes the command."""
    libc = None
    if sys.platform == "linux":
        import ctypes

        libc = ctypes.CDLL(None)

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        # A process is ended with SIGABRT to see its stack, which should not leave its memory on the disk.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if libc is not None:
            libc.prctl(_SET_PARENT_DEATH_SIGNAL, int(when_we_die))

    return prepare


def kill(processes: Sequence[subprocess.Popen[bytes]], *, gently_for_s: float = 0.0) -> None:
    """Ends the processes with all that they started; returns when they are gone.

    `gently_for_s`: how long those that stop processes of their own, here or on other machines, have for that.
    """
    # Whoever presses Ctrl-C twice must not stop us from ending what was started.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTING)
    try:
        _kill(processes, gently_for_s)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _kill(processes: Sequence[subprocess.Popen[bytes]], gently_for_s: float) -> None:
    below = {pid for process in processes if process.poll() is None for pid in descendants(process.pid)}
    if gently_for_s:
        for process in processes:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + gently_for_s
        while time.monotonic() < deadline and any(process.poll() is None for process in processes):
            time.sleep(0.05)
    for process in processes:
        # The group outlives its leader: a rank may have died before what it had started.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    for pid in below:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    for process in processes:
        process.wait()


def descendants(pid: int) -> list[int]:
    """The ids of all processes below one; empty where the system has no /proc."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            # The name, in parentheses, may hold anything.
            parent = int(status.read_text("utf-8", "replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(status.parent.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def is_stopped(pid: int) -> bool:
    """Whether a process is suspended, as by SIGSTOP: no other signal reaches it."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] in "Tt"
    return False


def ended_by(code: int) -> str:
    """What an exit code says: "exited with 1", "was killed (SIGKILL)"."""
    if code >= 0:
        return f"exited with {code}"
    try:
        return f"was killed ({signal.Signals(-code).name})"
    except ValueError:
        return f"was killed (signal {-code})"


def end_of(path: Path, *, lines: int = 20, characters: int = 3000) -> str:
    """The end of what a process wrote, "" where it wrote nothing."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - characters))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.strip().splitlines()[-lines:])
