"""Numbers of a long column: middle, quantiles, and as a reader wants to see them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

__all__ = ["finite", "in_full", "median", "percent", "quantile", "short"]


def finite(values: Iterable[float]) -> list[float]:
    """Those that are numbers."""
    return list(filter(math.isfinite, values))


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which this share of *sorted* values lies, between two of them by a straight line."""
    place = (len(values) - 1) * share
    below = math.floor(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)


def median(values: Iterable[float]) -> float:
    """The middle of the values, which need not be sorted; there must be one."""
    return quantile(sorted(values), 0.5)


def short(value: float) -> str:
    """Four digits that matter: 0.0001234, 1.234, 12,340, 1.234e+09; "inf" and "nan" as they are."""
    if not math.isfinite(value):
        return str(value)
    rounded = float(f"{value:.4g}")
    if value == int(value) and abs(value) < 1e9:
        return f"{value:,.0f}"
    if 1000 <= abs(rounded) < 1e9:
        return f"{rounded:,.0f}"
    return f"{rounded:.4g}"


def in_full(value: float) -> str:
    """A count with every digit: 12,345,678."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def percent(share: float) -> str:
    """21.3 %; what is neither nothing nor everything is not rounded to it."""
    text = f"{100 * share:.1f}"
    if text == "0.0" and share > 0:
        return "less than 0.1 %"
    if text == "100.0" and share < 1:
        return "more than 99.9 %"
    return f"{text.removesuffix('.0')} %"
