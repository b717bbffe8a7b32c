"""A training loop that a test can break: the usual one, in pieces, and what the engine said about it."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from cases import Case, case_of, samples_of
from model import batch_of, num_tokens
from torch import Tensor
from training import start, train_window

from ds_accum.engine.report import StepReport
from ds_accum.errors import AccumulationError


class Loop:
    """One engine, fed with the case's micro-batches; `window` is a whole accumulation window as it should be."""

    def __init__(self, case: Case, rank: int) -> None:
        self.case, self.rank = case, rank
        self.engine: Any = start(case)
        self.reports: list[StepReport] = []
        self._taken = 0

    @property
    def module(self) -> torch.nn.Module:
        return self.engine.module

    def batch(self) -> dict[str, Tensor]:
        """The next micro-batch of this rank."""
        window, index = divmod(self._taken, self.case.accumulation)
        self._taken += 1
        return batch_of(self.case, window, samples_of(self.case, window, index, self.rank))

    def backward(self) -> None:
        """Forward and backward of the next micro-batch."""
        batch = self.batch()
        self.engine.backward(self.engine(**batch), num_tokens=num_tokens(self.case, batch["labels"]))

    def step(self) -> None:
        """The engine's step; keeps the report of the update, if it was one."""
        before = self.engine.last_step
        self.engine.step()
        self.keep_report(before)

    def flush(self) -> None:
        before = self.engine.last_step
        self.engine.flush()
        self.keep_report(before)

    def keep_report(self, before: StepReport | None) -> None:
        if self.engine.last_step is not before:
            self.reports.append(self.engine.last_step)

    def micro_batch(self) -> None:
        self.backward()
        self.step()

    def window(self) -> None:
        for _ in range(self.case.accumulation):
            self.micro_batch()


Misuse = Callable[[Loop], Any]


def attempt(arguments: dict[str, Any], rank: int, folder: Path) -> dict[str, dict[str, Any]]:
    """Each function of a module that `arguments` names, in each mode, on an engine of its own; what became of it."""
    case = case_of(arguments["case"])
    module = importlib.import_module(arguments["module"])
    return {
        f"{name} {mode}": _attempt(getattr(module, name), _in_mode(case, mode), rank)
        for name in arguments["functions"]
        for mode in arguments["modes"]
    }


def run_cleanly(arguments: dict[str, Any], rank: int, folder: Path) -> dict[str, Any]:
    """All windows of a case as they should be: what was said meanwhile, which is nothing."""
    case = case_of(arguments)

    def train(loop: Loop) -> None:
        for window in range(len(case.windows)):
            before = loop.engine.last_step
            train_window(loop.engine, case, window, rank)
            loop.keep_report(before)

    return _attempt(train, case, rank)


def _in_mode(case: Case, mode: str) -> Case:
    return replace(case, block={**case.block, "on_misuse": mode})


def _attempt(run: Misuse, case: Case, rank: int) -> dict[str, Any]:
    loop = Loop(case, rank)
    said: dict[str, Any] = {"error": None, "text": None, "remedy": None, "value": None, "wrapper": _kind(loop)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            said["value"] = run(loop)
        except (AccumulationError, AssertionError, RuntimeError) as error:
            said |= {
                "error": type(error).__name__,
                "text": str(error),
                "remedy": getattr(error, "remedy", None),
                "pending": dict(loop.engine._accumulation.misuses),
            }
        # What torch says about names of its own that DeepSpeed uses is no matter here.
        said["warnings"] = [str(w.message) for w in caught if not issubclass(w.category, FutureWarning)]
        said["misuses"] = [dict(report.misuses) for report in loop.reports]
        said["steps"] = [_step(report) for report in loop.reports]
        if torch.distributed.is_initialized():  # not on a rank that has left
            loop.engine.destroy()
    return said


def _kind(loop: Loop) -> str:
    return type(loop.engine.optimizer).__name__


def _step(report: StepReport) -> Mapping[str, Any]:
    events = report.events
    return {
        "applied": report.applied,
        "skipped_because": report.skipped_because,
        "micro_batches": report.micro_batches,
        "norm": report.grad_norm is not None,
        "events": [events.backwards, events.reductions, events.norms, events.updates, events.zeroings],
    }
