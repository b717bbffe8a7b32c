"""What the ranks of `test_robustness.py` do: they die, overflow, find nothing to learn from, and go on for long."""

from __future__ import annotations

import gc
import hashlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from cases import Case, case_of, samples_of
from model import batch_of, num_tokens
from torch import Tensor
from training import loss_scale, master_parameters, start, train_window, update_errors
from truth import kept_truth

SAVED_EVERY = 2


# --- a rank that is killed ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Calls:
    """Counts the calls of Python and C functions in the main thread, and kills the process at one of them."""

    kill_at: int | None
    number: int = 0

    def __call__(self, _frame: Any, event: str, _argument: Any) -> None:
        if event in ("call", "c_call"):
            self.number += 1
            if self.number == self.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)


def train_to_the_end(arguments: dict[str, Any], rank: int, folder: Path) -> dict[str, Any]:
    """Trains all windows of `case` from the last of the `checkpoints`, saving more; what the parameters are then.

    The number of calls that it took goes to a file beside the job's folder.
    """
    case = case_of(arguments["case"])
    checkpoints = folder.parent / arguments["checkpoints"]
    engine = start(case)
    first = 0
    if (checkpoints / "latest").exists():
        engine.load_checkpoint(str(checkpoints))
        first = engine.global_steps
    with _counting(None) as calls:
        _train(engine, case, rank, checkpoints)
    _calls_file(folder, case, rank).write_text(str(calls.number), "utf-8")
    digest = hashlib.sha256(master_parameters(engine, case).numpy().tobytes()).hexdigest()
    return {"parameters": digest, "first_step": first, "steps": engine.global_steps}


def train_until_a_rank_dies(arguments: dict[str, Any], rank: int, folder: Path) -> dict[str, Any]:
    """The same, but rank `victim` is killed at the share `at` of its calls. What a survivor said when it stopped."""
    case = case_of(arguments["case"])
    checkpoints = folder.parent / arguments["checkpoints"]
    kill_at = None
    if rank == arguments["victim"]:
        kill_at = 1 + int(arguments["at"] * int(_calls_file(folder, case, rank).read_text("utf-8")))
    engine = start(case)
    try:
        with _counting(kill_at):
            _train(engine, case, rank, checkpoints)
    except RuntimeError as error:
        return {"error": str(error), "said": (folder / f"rank{rank}.log").read_text("utf-8")}
    raise AssertionError("nobody was killed")


def _train(engine: Any, case: Case, rank: int, checkpoints: Path) -> None:
    while engine.global_steps < len(case.windows):
        window = engine.global_steps
        for index in range(case.windows[window]):
            _micro_batch(engine, case, window, index, rank)
        if engine.global_steps % SAVED_EVERY == 0:
            engine.save_checkpoint(str(checkpoints))


def _micro_batch(engine: Any, case: Case, window: int, index: int, rank: int) -> None:
    batch = batch_of(case, window, samples_of(case, window, index, rank))
    engine.backward(engine(**batch), num_tokens=num_tokens(case, batch["labels"]))
    engine.step()


@contextmanager
def _counting(kill_at: int | None) -> Iterator[Calls]:
    calls = Calls(kill_at=kill_at)
    sys.setprofile(calls)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def _calls_file(folder: Path, case: Case, rank: int) -> Path:
    return folder.parent / f"calls-zero-{case.stage}-rank-{rank}"


def die_in(arguments: dict[str, Any], rank: int, folder: Path) -> dict[str, Any]:
    """Rank `victim` is killed inside a function of its engine, after one step and one checkpoint."""
    case = case_of(arguments["case"])
    checkpoints = folder.parent / arguments["checkpoints"]
    engine = start(case)
    _micro_batch(engine, case, 0, 0, rank)
    engine.save_checkpoint(str(checkpoints))
    if rank == arguments["victim"]:
        setattr(engine, arguments["function"], lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    try:
        _micro_batch(engine, case, 1, 0, rank)
        engine.save_checkpoint(str(checkpoints))
    except RuntimeError as error:
        latest = (checkpoints / "latest").read_text("utf-8")
        return {"error": str(error), "said": (folder / f"rank{rank}.log").read_text("utf-8"), "latest": latest}
    raise AssertionError("nobody was killed")


def wait_for_a_rank_that_died(arguments: dict[str, Any], rank: int, folder: Path) -> None:
    """Rank `victim` is killed; the others stay in a forward, as in a collective that never learns of it."""
    engine = start(case_of(arguments["case"]))
    dist.barrier()
    if rank == arguments["victim"]:
        os.kill(os.getpid(), signal.SIGKILL)
    engine.module.register_forward_pre_hook(lambda *_: time.sleep(60))
    engine(**batch_of(case_of(arguments["case"]), 0, range(1)))


def wait_in_a_bare_backward(arguments: dict[str, Any], rank: int, folder: Path) -> None:
    """Rank 0 waits in `loss.backward()` for the gradients of another that does something else."""
    case = case_of(arguments["case"])
    engine = start(case)
    loss = engine(**batch_of(case, 0, samples_of(case, 0, 0, rank)))
    if rank:
        time.sleep(60)
    loss.backward()


# --- windows that are not applied -----------------------------------------------------------------------------------------


def train_with_others_between(arguments: dict[str, Any], rank: int, folder: Path) -> dict[str, Any]:
    """A case whose windows have others between them that must change nothing: `between` says before which, of what kind
    ("overflow" or "empty") and how many. With `beside_stock`, stock DeepSpeed's loss scales on the same windows as well.
    """
    case = case_of(arguments["case"])
    between = {int(window): (kind, times) for window, (kind, times) in arguments["between"].items()}
    engine = start(case)
    parameters: list[Tensor] = []
    others: list[dict[str, Any]] = []
    for window in range(len(case.windows)):
        kind, times = between.get(window, ("", 0))
        for _ in range(times):
            before = master_parameters(engine, case)
            _train_other(engine, case, kind, window, rank)
            report = engine.last_step
            others.append(
                {
                    "changed": int((master_parameters(engine, case) != before).sum()),
                    "skipped_because": report.skipped_because,
                    "loss_scale": loss_scale(engine),
                }
            )
        train_window(engine, case, window, rank)
        parameters.append(master_parameters(engine, case))
    found: dict[str, Any] = {
        "others": others,
        "applied": engine.global_steps - engine.skipped_steps,
        "skipped": engine.skipped_steps,
        "last_step": {
            name: getattr(engine.last_step, name) for name in ("min_rank_tokens", "max_rank_tokens", "max_rank")
        },
    }
    if arguments.get("beside_stock"):
        found["stock_scales"] = _stock_scales(case, between, rank)
    if rank == 0:
        found["error"] = update_errors(parameters, kept_truth(case, folder.parent))
    return found


def _train_other(engine: Any, case: Case, kind: str, window: int, rank: int) -> None:
    other = replace(case, overflows_in=window) if kind == "overflow" else replace(case, data="empty")
    train_window(engine, other, window, rank)


def _stock_scales(case: Case, between: dict[int, tuple[str, int]], rank: int) -> list[float | None]:
    stock = replace(case, engine="stock")
    engine = start(stock)
    scales = []
    for window in range(len(case.windows)):
        kind, times = between.get(window, ("", 0))
        for _ in range(times):
            _train_other(engine, stock, kind, window, rank)
            scales.append(loss_scale(engine))
        train_window(engine, stock, window, rank)
    return scales


# --- for long -----------------------------------------------------------------------------------------------------------


class OneWeight(torch.nn.Module):
    """The least that has a loss: a step is all engine."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, labels: Tensor) -> Tensor:
        return (self.weight.square().sum() * (labels != -100)).mean()


def take_many_steps(arguments: dict[str, Any], rank: int, folder: Path) -> dict[str, list[int]]:
    """What this process holds after the first `warm_up` of `steps` steps, and at the end; `leak` bytes more each step."""
    import ds_accum

    model = OneWeight()
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": arguments["micro_batches"],
        "gradient_clipping": 1.0,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": arguments["stage"], "reduce_bucket_size": 1000, "allgather_bucket_size": 1000},
        "ds_accum": {"counting": {"shift": False}, "log": "steps.jsonl"},
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    engine = ds_accum.initialize(model=model, optimizer=optimizer, config=config)[0]
    labels = [torch.ones(1, 1 + index % 3, dtype=torch.long) for index in range(6)]
    held, leaked = [], []
    for step in range(arguments["steps"] + 1):
        if step in (arguments["warm_up"], arguments["steps"]):
            held.append(_held())
        for index in range(arguments["micro_batches"]):
            engine.backward(engine(labels=labels[(2 * step + index + rank) % 6]))
            engine.step()
        leaked.append(bytes(arguments["leak"]))
    return {name: [one[name] for one in held] for name in held[0]}


def _held() -> dict[str, int]:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return {
        "objects": len(gc.get_objects()),
        "memory_bytes": pages * os.sysconf("SC_PAGE_SIZE"),
        "open_files": len(list(Path("/proc/self/fd").iterdir())),
        "threads": len(list(Path("/proc/self/task").iterdir())),
    }
