"""Runs functions on real ranks: processes of their own, joined by gloo, without any launcher.

    answers = launch([Job(name="a", function="training:train", arguments={...}, ranks=2)])
    answers["a"].values[0]      # what `train(arguments, rank, folder)` returned on rank 0

All jobs of one call share one start of Python, torch and DeepSpeed (`forked_ranks.py`), which costs seconds; the ranks
of a job are forks of it, so a job costs a fraction of one, none can influence the next, and one that fails or hangs is
told from the others by its name.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

FOLDER = Path(__file__).resolve().parent
WORKER = FOLDER / "forked_ranks.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One function on some ranks. `function` is "module:name", the module lying in `tests/engine`.

    It is called as `name(arguments, rank, folder)` once the ranks are joined. `arguments` and what it returns are such
    as JSON can say; `folder`, of this job alone, is the working directory. `timeout` is in seconds; once a rank has ended,
    the others have `moment` seconds left. `after` names an earlier job that has to be over before this one starts.
    The ranks meet in a file, or with `"store": "rank 0"` as with DeepSpeed's launcher, where that rank serves the store.
    """

    name: str
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    ranks: int = 2
    timeout: float = 60.0
    moment: float = 5.0
    after: str | None = None
    store: Literal["file", "rank 0"] = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a job: what each rank returned, None for one that failed, and why it did, None for one that did not.

    A rank that hung until the job's time was up, or died, has its last output as the reason. `ends` is when each rank's
    process ended, in seconds since the job began.
    """

    values: tuple[Any, ...]
    errors: tuple[str | None, ...]
    ends: tuple[float, ...]
    seconds: float
    outputs: tuple[str, ...] = ()
    """The end of what each rank printed."""

    @property
    def failed(self) -> bool:
        return any(error is not None for error in self.errors)

    @property
    def report(self) -> str:
        """Every rank that failed, with its traceback."""
        return "\n".join(f"rank {rank}: {error}" for rank, error in enumerate(self.errors) if error is not None)

    def value(self) -> Any:
        """What rank 0 returned. Raises AssertionError with all tracebacks if a rank failed."""
        assert not self.failed, self.report
        return self.values[0]

    def each(self) -> tuple[Any, ...]:
        """What every rank returned. Raises AssertionError as `value` does."""
        self.value()
        return self.values


def launch(jobs: Iterable[Job], *, timeout: float = 1800.0, ranks_at_once: int | None = None) -> dict[str, Answer]:
    """The answer to each job, by name. Raises RuntimeError if the worker itself fails, or takes longer than `timeout`.

    As many ranks run at once as there are CPUs, unless `ranks_at_once` says that they mostly wait. With this call all processes that it started end, whatever happens.
    """
    lines = [json.dumps(asdict(job)) for job in jobs]
    if not lines:
        return {}
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    try:
        printed = _printed_by_worker("\n".join(lines), folder, timeout, ranks_at_once or os.cpu_count() or 1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    results = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return {
        result["name"]: Answer(
            values=tuple(result["values"]),
            errors=tuple(result["errors"]),
            seconds=result["seconds"],
            outputs=tuple(result["outputs"]),
            ends=tuple(result["ends"]),
        )
        for result in results
    }


def _printed_by_worker(lines: str, folder: Path, timeout: float, ranks_at_once: int) -> str:
    worker = subprocess.Popen(
        [sys.executable, str(WORKER), str(ranks_at_once), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in [str(FOLDER), *sys.path] if path)},
    )
    try:
        printed, errors = worker.communicate(lines, timeout=timeout)
    except subprocess.TimeoutExpired:
        last = "\n".join(
            f"{path}:\n{path.read_text('utf-8', 'replace')[-2000:]}" for path in folder.glob("*/rank*.log")
        )
        raise RuntimeError(f"the worker took longer than {timeout:g} s; its ranks said last:\n{last}") from None
    finally:
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.communicate()
    if worker.returncode:
        raise RuntimeError(f"the worker exited with {worker.returncode}:\n{errors[-4000:]}")
    return printed
