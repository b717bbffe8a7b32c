"""A million steps on a few hundred columns: what each column has to show, with no peak lost."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Bucket", "bucketed", "counted"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """The finite values of some neighbouring steps."""

    first: float
    last: float
    low: float
    high: float
    mean: float


def bucketed(steps: Sequence[int], values: Sequence[float], columns: int) -> list[Bucket | None]:
    """The values on this many columns of equally many step numbers each; None where a column has no finite value."""
    found: list[Bucket | None] = []
    for start, end in _bounds(steps, columns):
        held = [value for value in values[start:end] if math.isfinite(value)]
        if held:
            low, high = min(held), max(held)
            # A sum of finite numbers may overflow; one of numbers divided first may not, but rounds.
            mean = min(max(math.fsum(value / len(held) for value in held), low), high)
            found.append(Bucket(first=held[0], last=held[-1], low=low, high=high, mean=mean))
        else:
            found.append(None)
    return found


def counted(steps: Sequence[int], marked: Sequence[int], columns: int) -> list[int]:
    """How many of the marked step numbers (sorted) fall on each column."""
    counts = [0] * columns
    for step in marked:
        counts[(step - steps[0]) * columns // _span(steps)] += 1
    return counts


def _bounds(steps: Sequence[int], columns: int) -> list[tuple[int, int]]:
    """Which entries each column has, as (start, end)."""
    span = _span(steps)
    firsts = (steps[0] - (-column * span // columns) for column in range(columns))
    edges = [*(bisect_left(steps, first) for first in firsts), len(steps)]
    return list(pairwise(edges))


def _span(steps: Sequence[int]) -> int:
    return steps[-1] - steps[0] + 1
