"""What a mistake in the middle of an accumulation window does to the step, on each stage, in stock and guarded form.

The right step is that of the same variant on the same samples without the mistake; each is tried on a fresh engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ds_accum.compare.result import Misuse, VariantResult
from ds_accum.compare.spec import Variant
from ds_accum.compare.worker.engines import Context, start
from ds_accum.compare.worker.job import EventLog, Job
from ds_accum.compare.worker.parity import batches_of, rounding_of, tolerance_of
from ds_accum.compare.worker.stopping import OutOfStepError, one_sentence
from ds_accum.compare.worker.watch import Watch
from ds_accum.errors import AccumulationError, UsageError

__all__ = ["MISUSES", "run"]

SMALL_NORM = 0.01
"""What is clipped to by hand: less than any gradient's norm."""


def _clip_by_hand(engine: Any) -> None:
    nn.utils.clip_grad_norm_(engine.module.parameters(), SMALL_NORM)


def _zero_by_engine(engine: Any) -> None:
    engine.zero_grad()


def _zero_by_optimizer(engine: Any) -> None:
    engine.optimizer.zero_grad()


def _step_the_optimizer(engine: Any) -> None:
    engine.optimizer.step()


def _edit_a_gradient(engine: Any) -> None:
    for parameter in engine.module.parameters():
        if parameter.grad is not None:
            parameter.grad.mul_(0.5)


MISUSES: Mapping[str, Callable[[Any], None]] = {
    "clip_grad_norm_ by hand": _clip_by_hand,
    "engine.zero_grad()": _zero_by_engine,
    "optimizer.zero_grad()": _zero_by_optimizer,
    "optimizer.step()": _step_the_optimizer,
    "parameter.grad edited": _edit_a_gradient,
}
"""What the loop does once, in the middle of a window."""


def run(job: Job, context: Context, log: EventLog | None) -> None:
    """Tries every misuse on every variant of the job and reports them. Raises OutOfStepError where ranks part."""
    for variant in job.chosen:
        if log is not None:
            log.started(variant.name)
        misuses: list[Misuse] | None = None
        error = None
        try:
            misuses = _try_all(variant, context, log)
        except OutOfStepError:
            raise
        except Exception as raised:
            error = raised
        why = context.ranks.failure(error)
        if log is None:
            continue
        if why is not None or misuses is None:
            log.failed(variant.name, why or "nothing was tried")
        else:
            log.result(VariantResult(name=variant.name, status="done", misuses=tuple(misuses)))


def _try_all(variant: Variant, context: Context, log: EventLog | None) -> list[Misuse]:
    if variant.engine not in ("stock", "token"):
        raise UsageError(f"misuse is tried on DeepSpeed's engines, and {variant.name} is none")
    if variant.gradient_accumulation_steps < 2:
        raise UsageError(
            f"{variant.name} accumulates 1 micro-batch, so its window has no middle",
            remedy="accumulate two or more",
        )
    before, right, why = _step(variant, context, None)
    if why is not None:
        raise why
    found = []
    for index, (name, misuse) in enumerate(MISUSES.items()):
        _, after, error = _step(variant, context, misuse)
        step_error = None if error is not None else _step_error(before, right, after)
        # All ranks have to come to the same: the first one's parameters decide.
        (agreed,) = context.ranks.max([-1.0 if step_error is None else step_error])
        found.append(
            Misuse(
                misuse=name,
                outcome=_outcome(error, agreed, tolerance_of(variant, context.spec, rounding_of(before, right))),
                step_error=step_error,
            )
        )
        if log is not None:
            log.progress(variant.name, index + 1, len(MISUSES))
    return found


def _step(
    variant: Variant, context: Context, misuse: Callable[[Any], None] | None
) -> tuple[Mapping[str, Tensor] | None, Mapping[str, Tensor] | None, Exception | None]:
    """The parameters before and after one step with a misuse in the middle, and what stopped it.

    Raises OutOfStepError where it stops some ranks only.
    """
    engine: Any = start(variant, context)
    middle = variant.gradient_accumulation_steps // 2 - 1

    def after(micro_batch: int) -> None:
        if misuse is not None and micro_batch == middle:
            misuse(engine.engine)

    before = engine.parameters()
    error: Exception | None = None
    try:
        engine.train_window(batches_of(variant, engine, 0, context), Watch(context.ranks.device), after)
    except Exception as raised:
        error = raised
    context.ranks.failure(error)
    parameters = engine.parameters() if error is None else None
    engine.close()
    return before, parameters, error


def _step_error(
    before: Mapping[str, Tensor] | None, right: Mapping[str, Tensor] | None, after: Mapping[str, Tensor] | None
) -> float | None:
    """|after - right| / |right - before| over all parameters; None but on the rank that has them."""
    if before is None or right is None or after is None:
        return None
    wrong = math.sqrt(sum(float(torch.sum((after[name] - right[name]) ** 2)) for name in right))
    moved = math.sqrt(sum(float(torch.sum((right[name] - before[name]) ** 2)) for name in right))
    return wrong / (moved or 1.0)


def _outcome(error: Exception | None, step_error: float, tolerance: float) -> str:
    if isinstance(error, AccumulationError):
        return f"stopped: {type(error).__name__}"
    if error is not None:
        return f"fails: {one_sentence(error)}"
    return "no effect" if step_error <= tolerance else "changes the step"
