"""Why one layout is ahead of another: the difference of their steps, part by part."""

from __future__ import annotations

from dataclasses import dataclass

from ds_accum.plan.cost import PARTS, TimePart
from ds_accum.plan.planned import PlannedLayout

__all__ = ["Advantage", "advantage_over"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Advantage:
    """What the first of two layouts saves and spends in a step, in seconds, the largest first; all are positive."""

    seconds: float
    share: float
    """Of the other's step, from 0 to 1."""

    saved: tuple[tuple[TimePart, float], ...]
    spent: tuple[tuple[TimePart, float], ...]


def advantage_over(first: PlannedLayout, other: PlannedLayout) -> Advantage:
    """The advantage of `first`, which is at least as fast."""
    seconds = other.step.step_seconds - first.step.step_seconds
    by_part = [(part, other.step.part_seconds(part) - first.step.part_seconds(part)) for part in PARTS]
    return Advantage(
        seconds=seconds,
        share=seconds / other.step.step_seconds,
        saved=tuple(sorted(((part, gain) for part, gain in by_part if gain > 0), key=_largest_first)),
        spent=tuple(sorted(((part, -gain) for part, gain in by_part if gain < 0), key=_largest_first)),
    )


def _largest_first(item: tuple[TimePart, float]) -> tuple[float, int]:
    part, seconds = item
    return (-seconds, PARTS.index(part))
