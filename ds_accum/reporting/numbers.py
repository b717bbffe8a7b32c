"""Numbers as a reader of a report wants them: 34.8 kB, 1.28 ms, 2.9 times, 4.1e-07."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["bytes_text", "count_text", "error_text", "listed", "loss_text", "seconds_text", "times_text"]

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_SECOND_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def bytes_text(number: float) -> str:
    """Three digits that matter, in powers of 1,000 as links are rated: 4 B, 34.8 kB, 1.5 GB."""
    if not math.isfinite(number):
        return str(number)
    value, unit = float(number), 0
    while abs(float(f"{value:.3g}")) >= 1000 and unit < len(_BYTE_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{_plain(value)} {_BYTE_UNITS[unit]}"


def seconds_text(seconds: float) -> str:
    """Three digits that matter: 1.5 s, 12.3 ms, 40 us."""
    if not math.isfinite(seconds) or seconds == 0:
        return f"{seconds:g} s"
    for size, unit in _SECOND_UNITS:
        if abs(float(f"{seconds:.3g}")) >= size:
            return f"{_plain(seconds / size)} {unit}"
    return f"{seconds:.2e} s"


def error_text(error: float) -> str:
    """A relative error: two digits, 0 as 0."""
    return f"{error:.1e}" if math.isfinite(error) and error else f"{error:g}"


def loss_text(value: float) -> str:
    """A loss or a norm: five digits."""
    return f"{value:.5g}"


def times_text(ratio: float) -> str:
    """A ratio, two digits or as many as it has before the point: 0.97, 2.9, 16."""
    if not math.isfinite(ratio):
        return str(ratio)
    if ratio >= 10 or ratio == int(ratio):
        return f"{ratio:,.0f}"
    return f"{ratio:.1f}" if ratio >= 1.95 else f"{ratio:.2f}"


def count_text(number: float) -> str:
    """A count with every digit, which is a mean where it has a fraction: 12,345, 2.5."""
    return f"{number:,.0f}" if math.isfinite(number) and number == int(number) else f"{number:,.2f}"


def listed(words: Sequence[str], *, most: int = 4) -> str:
    """a, b and c; of a long list the first ones and how many more."""
    if len(words) > most:
        return f"{', '.join(words[: most - 1])} and {len(words) - most + 1} more"
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _plain(value: float) -> str:
    text = f"{value:.3g}"
    return f"{float(text):,.0f}" if "e" in text else text
