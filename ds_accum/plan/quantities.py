"""Quantities as people write them: 7B, 4e6, 4Mi and 80GB are exact integers, or an error that says why not.

read_quantity("4Mi", name="--tokens-per-step")     # 4_194_304
read_bytes("80GiB", name="--gpu-memory")           # 85_899_345_920
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from ds_accum.errors import UsageError

__all__ = ["LARGEST_QUANTITY", "LEAST_MEMORY", "read_bytes", "read_quantity", "read_ratio"]

LARGEST_QUANTITY = 10**18
"""Nothing that is trained has more tokens, samples or parameters, and every number derived stays readable."""

LEAST_MEMORY = 10**6
"""Bytes; what is less was meant in a unit that was left out."""

_NUMBER = re.compile(
    r"(?P<number>\d+(?:\.\d+)?|\.\d+)(?:[eE](?P<exponent>[+]?\d{1,3}))? ?(?P<unit>[a-zA-Z]{0,3})", re.ASCII
)
_DECIMAL = re.compile(r"(?:\d{1,20}(?:\.\d{1,40})?|\.\d{1,40})(?:[eE]-?\d{1,2})?", re.ASCII)
_THOUSANDS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "pi": 2**50}
_OF_COUNTS = {"": 1, **_THOUSANDS, "b": 10**9, **_BINARY}
_OF_BYTES = {"": 1, "b": 1, **{f"{prefix}b": size for prefix, size in {**_THOUSANDS, **_BINARY}.items()}}


def read_quantity(text: str, *, name: str) -> int:
    """A whole number of at least 1; k, M, B (or G) and T are powers of 1,000, Ki, Mi, Gi and Ti of 1,024.

    Raises UsageError, with `name` in the sentence, for everything else.
    """
    return _read(text, name, _OF_COUNTS, "7000000000, 7e9, 7B or 4Mi (k, M, B and T are powers of 1,000, Mi of 1,024)")


def read_bytes(text: str, *, name: str, least: int = 1) -> int:
    """A whole number of bytes, at least `least`: 80GB is 80 x 10^9, 80GiB 80 x 2^30. Raises UsageError."""
    number = _read(text, name, _OF_BYTES, "80GB (powers of 1,000), 74.5GiB (of 1,024) or the number of bytes")
    if number < least:
        raise UsageError(f"{name} {_shown(text)} is {number:,} bytes", remedy=f"give its unit, as in {number}GB")
    return number


def _read(text: str, name: str, units: Mapping[str, int], example: str) -> int:
    match = _NUMBER.fullmatch(text.strip().replace("_", "").replace(",", ""))
    unit = None if match is None else units.get(match["unit"].lower())
    if match is None or unit is None or len(text) > 60:
        raise UsageError(f"{name} {_shown(text)} is no number", remedy=f"write it as in {example}")
    exact = Fraction(match["number"]) * 10 ** int(match["exponent"] or 0) * unit
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
