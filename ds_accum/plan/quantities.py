"""Quantities as people write them: 7B, 3.1M, 4e6 and 1_000_000 are exact integers, or an error that says why not."""

from __future__ import annotations

import re
from fractions import Fraction

from ds_accum.errors import UsageError

__all__ = ["LARGEST_QUANTITY", "read_quantity", "read_ratio"]

LARGEST_QUANTITY = 10**18
"""Nothing that is trained has more tokens, samples or parameters, and every number derived stays readable."""

_NUMBER = re.compile(
    r"(?P<number>\d+(?:\.\d+)?|\.\d+)(?:[eE](?P<exponent>[+]?\d{1,3}))?(?P<unit>[kKmMbBgGtT]?)", re.ASCII
)
_DECIMAL = re.compile(r"(?:\d{1,20}(?:\.\d{1,40})?|\.\d{1,40})(?:[eE]-?\d{1,2})?", re.ASCII)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}


def read_quantity(text: str, *, name: str) -> int:
    """A whole number of at least 1; k, M, B (or G) and T stand for powers of 1,000.

    Raises UsageError, with `name` in the sentence, for everything else.
    """
    match = _NUMBER.fullmatch(text.strip().replace("_", "").replace(",", ""))
    if match is None or len(text) > 60:
        raise UsageError(
            f"{name} {_shown(text)} is no number",
            remedy="write it as in 7000000000, 7e9 or 7B (k, M, B and T are powers of 1,000)",
        )
    exact = Fraction(match["number"]) * 10 ** int(match["exponent"] or 0) * _UNITS[match["unit"].lower()]
    if exact > LARGEST_QUANTITY:
        raise UsageError(f"{name} {_shown(text)} is beyond 10^18", remedy=f"give the real {name}")
    if exact.denominator != 1:
        raise UsageError(f"{name} {_shown(text)} is not a whole number", remedy=f"give {name} without a fraction")
    if exact < 1:
        raise UsageError(f"{name} must be at least 1, not {_shown(text)}", remedy=f"set {name} to 1 or more")
    return int(exact)


def read_ratio(text: str, *, name: str, most: int | None = None) -> Fraction:
    """A decimal number above 0, exactly as written. Raises UsageError for anything else, and beyond `most`."""
    if _DECIMAL.fullmatch(text.strip()) is None:
        raise UsageError(f"{name} {_shown(text)} is no number above 0", remedy="write it as in 0.05")
    exact = Fraction(text.strip())
    if exact <= 0 or (most is not None and exact > most):
        bound = "more than 0" if most is None else f"more than 0 and at most {most}"
        raise UsageError(f"{name} must be {bound}, not {_shown(text)}", remedy="write it as in 0.05")
    return exact


def _shown(text: str) -> str:
    return repr(text if len(text) <= 30 else f"{text[:27]}...")
