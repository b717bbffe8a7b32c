"""Axis: which height a value is drawn at, straight or, where a few values dwarf the rest, logarithmic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ds_accum.steps.numbers import median

__all__ = ["Axis"]

# From so many times the median on, a straight axis would press everything else onto its floor.
_LOGARITHMIC_FROM = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """Values from `low` to `high` -> heights from 0 to 1, and back for the labels."""

    low: float
    high: float
    is_logarithmic: bool

    @classmethod
    def over(cls, values: Sequence[float]) -> Axis:
        """The axis for finite values; there must be one."""
        low, high = min(values), max(values)
        if low == high:
            margin = abs(low) / 10 or 1.0
            return cls(low=low - margin, high=high + margin, is_logarithmic=False)
        return cls(low=low, high=high, is_logarithmic=low > 0 and high > _LOGARITHMIC_FROM * median(values))

    def height(self, value: float) -> float:
        """0 at the bottom, 1 at the top."""
        if self.is_logarithmic:
            low, high = math.log(self.low), math.log(self.high)
            return (math.log(value) - low) / (high - low)
        # Halved, so that the distance of two huge numbers is still one.
        return (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)

    def value(self, height: float) -> float:
        """What is drawn at a height."""
        if self.is_logarithmic:
            low, high = math.log(self.low), math.log(self.high)
            return math.exp(low + height * (high - low))
        return self.low * (1 - height) + self.high * height
