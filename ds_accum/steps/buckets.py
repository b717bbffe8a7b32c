"""A million steps on a few hundred columns: what each column has to show, with no peak lost."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

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
    width = _width(steps, columns)
    counts = [0] * columns
    for step in marked:
        counts[min(int((step - steps[0]) / width), columns - 1)] += 1
    return counts


def _bounds(steps: Sequence[int], columns: int) -> list[tuple[int, int]]:
    """Which entries each column has, as (start, end)."""
    width = _width(steps, columns)
    edges = [bisect_left(steps, steps[0] + column * width) for column in range(columns)] + [len(steps)]
    return list(itertools.pairwise(edges))


def _width(steps: Sequence[int], columns: int) -> float:
    return (steps[-1] - steps[0] + 1) / columns
