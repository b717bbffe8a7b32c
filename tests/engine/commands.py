"""Commands that start processes of their own, of which none is left once they are over."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a command has written."""

    printed: str
    errors: str


def output_of_python(arguments: Sequence[str], *, folder: Path, timeout: float) -> Output:
    """`python ...` on the CPU with this ds_accum, in `folder`.

    Raises AssertionError with all that was written if it fails or takes longer than `timeout` seconds.
    """
    command = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    ended = "ended"
    try:
        printed, errors = command.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        ended = f"took longer than {timeout:g} s"
        _kill(command)
        printed, errors = command.communicate()
    finally:
        _kill(command)
    assert not command.returncode, f"{ended} with {command.returncode}:\n{printed[-4000:]}\n{errors[-4000:]}"
    return Output(printed=printed, errors=errors)


def _kill(command: subprocess.Popen[str]) -> None:
    """Ends whatever is left of the command's session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(command.pid, signal.SIGKILL)
