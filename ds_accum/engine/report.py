"""StepReport: what one optimizer step did, in numbers that are the same on every rank.

    report = engine.last_step
    print(report.num_tokens, report.loss, report.grad_norm, report.applied)

It is made of the window's totals, which every rank has gathered, and of what DeepSpeed left behind after its step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["EventCounts", "SkipReason", "StepReport"]

SkipReason = Literal["no counted token", "non-finite loss", "non-finite gradient", "overflow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCounts:
    """How often each part of a step happened in one window, on this rank: the evidence that clipping happens once.

    A step that is right has one backward a micro-batch, one reduction (one a backward where ZeRO-2/3 reduces at once),
    one norm at most, then one update, then gradients set to zero.
    """

    backwards: int
    reductions: int
    norms: int
    updates: int
    zeroings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One optimizer step. Numbers are global unless they say otherwise; None: nobody takes that number here."""

    step: int
    """Optimizer steps so far, this one included, those that were skipped as well: DeepSpeed's `global_steps`."""

    micro_batches: int
    """Micro-batches of the window on this rank."""

    ranks: int
    """Ranks of the group that gradients are reduced over."""

    num_tokens: int | None
    """Counted tokens of the window, over all micro-batches and ranks; None where counts are not known (micro_batch)."""

    min_rank_tokens: int | None
    """Tokens of the rank that has the fewest; None above 1,024 ranks, where it is not known."""

    min_rank: int | None
    """That rank, of the same group."""

    max_rank_tokens: int | None
    """Tokens of the rank that has the most."""

    max_rank: int | None
    """That rank."""

    loss: float | None
    """Mean loss over all counted tokens of the global batch, before the update; None where no token counts."""

    grad_norm: float | None
    """L2 norm of the complete, reduced and unscaled gradient, before clipping; infinite after an overflow. With Muon on
    ZeRO it is that of the update which Muon has made of the gradient by then: what DeepSpeed measures and clips."""

    clip_coefficient: float | None
    """What clipping multiplied the gradient by, min(1, gradient_clipping / (grad_norm + 1e-6)); None without it."""

    learning_rate: float | None
    """Of the first parameter group, as this step used it."""

    loss_scale: float
    """What the losses of this window were scaled by, 1.0 where nothing scales."""

    applied: bool
    """Whether parameters were updated."""

    skipped_because: SkipReason | None
    """Why not."""

    weighting_skew: float | None
    """The largest ratio of the weight that a mean of means gives a token to the right one; 1.0 for equal counts."""

    misuses: Mapping[str, int]
    """Misuses of the window on this rank, where `on_misuse` lets them pass: name of the exception -> how often."""

    events: EventCounts
    """What happened in the window, on this rank."""

    seconds: float
    """From the end of the step before to the end of this one."""

    @classmethod
    def measured(cls, norm: Any, clipping: float, **numbers: Any) -> StepReport:
        """The report of a step with this norm, a number or a tensor with one, or None; it is read on the host now."""
        grad_norm = None if norm is None else float(norm)
        coefficient = None if grad_norm is None or clipping <= 0 else min(1.0, clipping / (grad_norm + 1e-6))
        return cls(grad_norm=grad_norm, clip_coefficient=coefficient, **numbers)

    @property
    def clipped_norm(self) -> float | None:
        """L2 norm of the gradient that the optimizer was given; None where no norm was taken or no step applied."""
        if self.grad_norm is None or not self.applied:
            return None
        return self.grad_norm * (1.0 if self.clip_coefficient is None else self.clip_coefficient)
