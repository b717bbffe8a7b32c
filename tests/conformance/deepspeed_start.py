"""What the installed DeepSpeed does with a config when it starts, and at its first optimizer step: real CPU ranks.

    outcomes = run_trials([Trial(name="a", config=path), ...])
    outcomes["a"].refused_at_start

All trials of one call share one launch (`start_worker.py`), which costs some seconds; a trial then costs a fraction
of one.
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

WORKER = Path(__file__).with_name("start_worker.py")
# What the worker says where it did not know that a trial needs one of DeepSpeed's compiled operators.
NOT_COMPILED = "has to be compiled before the first rank starts"

ClientOptimizer = Literal["torch", "deepspeed"]
"""What the script passes: torch.optim.AdamW, or DeepSpeedCPUAdam, the one kind that ZeRO-Offload takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One start of DeepSpeed. `config` is a path or the values; with `step`, `steps` optimizer steps follow.

    `measure` has each of them measured (`measure.py`); `look` are Python expressions over the `engine`, by name, whose
    values, such as JSON can say, are wanted after the last.
    `pipeline_stages` is the number of stages of a pipeline module, 0 for a plain model. `timeout` is in seconds.
    """

    name: str
    config: str | Mapping[str, Any]
    ranks: int = 1
    pipeline_stages: int = 0
    client_optimizer: ClientOptimizer | None = None
    client_scheduler: bool = False
    step: bool = False
    steps: int = 1
    measure: bool = False
    look: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a trial. `reached` is what the slowest rank got done; `errors` are those of the ranks that failed.

    `hung` says that no rank ended in time. `log` is the traceback or the last output of the first rank that failed.
    `seen` is what rank 0 saw after its last step: "steps", what each of them did, and what the trial looked at.
    """

    reached: Literal["start", "first step"] | None
    errors: tuple[str, ...]
    hung: bool
    log: str
    symmetrical: bool
    seen: Mapping[str, Any] = field(default_factory=dict)

    @property
    def refused_at_start(self) -> bool:
        return self.reached is None

    @property
    def failed(self) -> bool:
        return bool(self.errors)

    @property
    def error(self) -> str:
        """The first error, "" without one."""
        return self.errors[0] if self.errors else ""


def run_trials(trials: Iterable[Trial], *, timeout: float = 1800.0) -> dict[str, Outcome]:
    """The outcome of each trial, by name. Raises RuntimeError, with its output, if the worker itself fails.

    `timeout` is for all of them together, in seconds; where DeepSpeed's CPU optimizers have not been compiled yet, that
    comes first and takes minutes.
    """
    lines = [json.dumps(asdict(trial)) for trial in trials]
    if not lines:
        return {}
    folder = tempfile.mkdtemp(dir=_fast_folder())
    try:
        printed = _run_worker("\n".join(lines), folder, timeout)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    results = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    outcomes = {result["name"]: _outcome(result) for result in results}
    not_compiled = sorted({outcome.error for outcome in outcomes.values() if NOT_COMPILED in outcome.error})
    if not_compiled:
        raise RuntimeError(f"the worker can't tell: {'; '.join(not_compiled)}")
    return outcomes


def _run_worker(lines: str, folder: str, timeout: float) -> str:
    """What the worker prints about the trials. With it all its ranks end, whatever happens."""
    worker = subprocess.Popen(
        [sys.executable, str(WORKER), str(os.cpu_count() or 1), folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={
            **os.environ,
            # ninja lies beside the interpreter, which need not be on the path.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            # On a CPU, DeepSpeed still takes a GPU for some things where torch finds one.
            "CUDA_VISIBLE_DEVICES": "",
        },
    )
    try:
        printed, errors = worker.communicate(lines, timeout=timeout)
    except subprocess.TimeoutExpired:
        locks = ", ".join(map(str, _locks_of_compilers())) or "none"
        raise RuntimeError(f"the worker took longer than {timeout:g} s; compilers left these locks: {locks}") from None
    finally:
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.communicate()
    if worker.returncode:
        raise RuntimeError(f"the worker exited with {worker.returncode}:\n{errors[-4000:]}")
    return printed


def _locks_of_compilers() -> list[Path]:
    """torch's locks on operators that are being compiled, or that were when somebody killed the compiler."""
    folder = os.environ.get("TORCH_EXTENSIONS_DIR") or Path.home() / ".cache" / "torch_extensions"
    return sorted(Path(folder).rglob("lock"))


def _outcome(result: dict[str, Any]) -> Outcome:
    ranks = result["ranks"]
    failed = [rank for rank in ranks if rank["error"] is not None]
    order = (None, "start", "first step")
    return Outcome(
        reached=min((rank["reached"] for rank in ranks), key=order.index),
        errors=tuple(rank["error"] for rank in failed),
        hung=result["hung"],
        log=failed[0]["traceback"] if failed else "",
        symmetrical=len(failed) in (0, len(ranks)),
        seen=ranks[0]["seen"],
    )


def _fast_folder() -> str | None:
    """Memory, where there is some to write to: each trial writes a handful of small files."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
