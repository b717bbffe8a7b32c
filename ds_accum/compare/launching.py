"""One launch: starts the ranks, passes on what they say, and ends them all, whatever happens.

with Launch(job, spec, launcher) as launch:
    for event in launch.events():
        ...
    launch.failure      # None, or why it failed: the end of a rank's stderr, and as the last line a sentence
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

from ds_accum.compare.jobs import Event, EventReader, Job, write_job
from ds_accum.compare.launchers import Launcher, commands
from ds_accum.compare.processes import end_of, ended_by, is_stopped, kill, start
from ds_accum.compare.spec import RunSpec
from ds_accum.errors import UsageError

__all__ = ["Launch"]

_POLL_S = 0.05
# After the first rank has failed: the others notice when they next talk to it, and say something of their own.
_GRACE_S = 3.0
# What a launcher has to end its ranks, here or elsewhere.
_LAUNCHER_GRACE_S = 10.0
_STACK_S = 3.0
# What the ranks have to say what they know, once they are asked to end.
_LAST_WORDS_S = 3.0

# What a rank says that failed because another one was gone.
_COLLATERAL = re.compile(r"connection (closed|reset)|broken pipe|recvvalue failed|store.*(closed|gone)", re.IGNORECASE)
# The line with which a traceback ends.
_EXCEPTION = re.compile(r"[\w.]*(Error|Exception|Interrupt|Exit|Failure)\w*: ")
# A frame of a rank that waits for the others in a collective.
_WAITS = re.compile(r'File "[^"]*(torch/distributed|deepspeed/comm)/[^"]*", line \d+ in (\w+)')
_FRAME = re.compile(r'File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<function>\S+)')


class Launch:
    """The processes of one job, in a folder of their own. Used once, as a context manager."""

    def __init__(self, job: Job, spec: RunSpec, launcher: Launcher) -> None:
        self._job = job
        self._spec = spec
        self._launcher = launcher
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ranks: list[int | None] = []
        self._files = ExitStack()
        self.folder = Path()
        self.failure: str | None = None

    def __enter__(self) -> Launch:
        parent = Path(self._launcher.folder or tempfile.gettempdir())
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="ds-accum-compare-", dir=parent)).absolute()
        except OSError as error:
            raise _unwritable(parent, error) from error
        try:
            try:
                self._reader = EventReader(self.folder / "events.jsonl")
                write_job(self.folder, self._job, self._spec)
            except OSError as error:
                raise _unwritable(parent, error) from error
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def events(self) -> Iterator[Event]:
        """What rank 0 says, as it says it, until the launch has ended, failed, or not moved for `spec.timeout_s`."""
        reader = self._reader
        finished = False
        moved = time.monotonic()
        failed: list[int] = []
        give_up: float | None = None
        while True:
            codes = [process.poll() for process in self._processes]
            # Read after the look at the processes: what a rank says before it ends is then never missed.
            for event in reader.new():
                finished |= event.kind == "finished"
                moved = time.monotonic()
                yield event
            failed += [place for place, code in enumerate(codes) if code and place not in failed]
            now = time.monotonic()
            if failed and give_up is None:
                give_up = now + _GRACE_S
            if None not in codes or (give_up is not None and now > give_up):
                break
            if give_up is None and now - moved > self._spec.timeout_s:
                self.failure = self._hang()
                return
            time.sleep(_POLL_S)
        if failed:
            self.failure = self._of_the_first(failed)
        elif not finished:
            self.failure = "the ranks ended without an error, but before they had finished"

    def last_words(self) -> Iterator[Event]:
        """What rank 0 still says when it is asked to end: of each variant, what was measured so far."""
        reader = self._reader
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + _LAST_WORDS_S
        while True:
            over = all(process.poll() is not None for process in self._processes) or time.monotonic() > deadline
            yield from reader.new()
            if over:
                return
            time.sleep(_POLL_S)

    # ------------------------------------------------------------------------------------------------ start and end

    def _start(self) -> None:
        spec = self._spec
        for command in commands(self._launcher, self.folder, world_size=spec.world_size, device=spec.device):
            name = self._file_name(command.rank, len(self._processes))
            output = self._files.enter_context((self.folder / f"{name}.out").open("wb"))
            errors = self._files.enter_context((self.folder / f"{name}.err").open("wb"))
            is_launcher = command.rank is None
            try:
                process = start(
                    command.arguments,
                    environment=command.environment,
                    output=output,
                    errors=errors,
                    when_we_die=signal.SIGTERM if is_launcher else signal.SIGKILL,
                )
            except OSError as error:
                raise UsageError.because(f"can't start {command.arguments[0]}", error) from error
            self._processes.append(process)
            self._ranks.append(command.rank)

    def _end(self) -> None:
        is_launcher = self._launcher.kind != "local"
        try:
            kill(self._processes, gently_for_s=_LAUNCHER_GRACE_S if is_launcher else 0.0)
        finally:
            self._files.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    # --------------------------------------------------------------------------------------------------- why it failed

    def _of_the_first(self, failed: list[int]) -> str:
        """The failure that is the cause: of several ranks, not one that says that another was gone."""

        def is_collateral(place: int) -> bool:
            return self._processes[place].returncode > 0 and bool(
                _COLLATERAL.search(_reason(self._end_of_errors(place)))
            )

        cause = min(failed, key=lambda place: (is_collateral(place), failed.index(place)))
        code = self._processes[cause].returncode
        end = self._end_of_errors(cause)
        # What killed a rank from outside, the rank could not say.
        return _below(end, f"{self._name(cause)} {ended_by(code)}" + (f": {_reason(end)}" if code > 0 else ""))

    def _hang(self) -> str:
        """Which rank is behind, by the stack that each is made to write as it is ended."""
        sentence = f"no progress for {self._spec.timeout_s:g} s"
        if self._launcher.kind != "local":
            return _below(self._end_of_errors(0), f"{sentence}; the launch was ended")
        stopped = [place for place, process in enumerate(self._processes) if is_stopped(process.pid)]
        if stopped:
            names = " and ".join(map(self._name, stopped))
            return f"{sentence}: {names} {'is' if len(stopped) == 1 else 'are'} suspended (SIGSTOP)"
        gone = [place for place, process in enumerate(self._processes) if process.poll() is not None]
        if gone:
            return f"{sentence}: {' and '.join(map(self._name, gone))} ended early, and the others wait"
        stacks = self._stacks()
        behind = {place: stack for place, stack in stacks.items() if not _WAITS.search(stack)}
        if len(behind) == len(stacks) or not behind:
            where = "; ".join(f"{self._name(place)} is {_place(stack)}" for place, stack in stacks.items())
            return f"{sentence}: {where}"
        where = "; ".join(f"{self._name(place)} is behind, {_place(stack)}" for place, stack in behind.items())
        others = [self._name(place) for place in stacks if place not in behind]
        return f"{sentence}: {where}; {' and '.join(others)} wait{'s' if len(others) == 1 else ''} for it"

    def _stacks(self) -> dict[int, str]:
        """What Python's fault handler writes about each rank's main thread on SIGABRT; it ends the ranks."""
        before = [self._errors_of(place).stat().st_size for place in range(len(self._processes))]
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGABRT)
        deadline = time.monotonic() + _STACK_S
        while time.monotonic() < deadline and any(process.poll() is None for process in self._processes):
            time.sleep(_POLL_S)
        stacks = {}
        for place, size in enumerate(before):
            text = self._errors_of(place).read_bytes()[size:].decode("utf-8", "replace")
            # Of several threads the main one comes last; what follows it lists loaded modules.
            stacks[place] = text.rpartition("(most recent call first):")[2].partition("\n\n")[0]
        return stacks

    # --------------------------------------------------------------------------------------------------- names

    def _file_name(self, rank: int | None, place: int) -> str:
        return f"launcher{place}" if rank is None else f"rank{rank}"

    def _name(self, place: int) -> str:
        rank = self._ranks[place]
        return self._launcher.kind if rank is None else f"rank {rank}"

    def _errors_of(self, place: int) -> Path:
        return self.folder / f"{self._file_name(self._ranks[place], place)}.err"

    def _end_of_errors(self, place: int) -> str:
        return end_of(self._errors_of(place))


def _unwritable(folder: Path, error: OSError) -> UsageError:
    return UsageError.because(
        f"can't write the job of a launch to {folder}",
        error,
        remedy="make room there, or name another folder with --shared-dir or TMPDIR",
    )


def _below(end: str, sentence: str) -> str:
    """The end of a stderr, and the sentence that sums it up as the last line, as in a traceback."""
    return f"{end}\n{sentence}" if end else sentence


def _reason(end: str) -> str:
    """The line of the end of a stderr that says why: the last one that names an exception, else the last one."""
    lines = end.splitlines()
    named = [line for line in lines if _EXCEPTION.match(line)]
    return (named or lines or ["it wrote nothing to stderr"])[-1].strip()


def _place(stack: str) -> str:
    """Where a stack is: the innermost frame, of a waiting rank the collective."""
    waits = _WAITS.search(stack)
    if waits is not None:
        return f"waiting in {waits[2]}"
    frame = _FRAME.search(stack)
    return (
        "where no stack could be had" if frame is None else f"in {frame['function']} ({frame['file']}:{frame['line']})"
    )
