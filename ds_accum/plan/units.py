"""Whole numbers as people write them: 4M is 4,000,000, 4Mi is 4,194,304, 80GB is 80,000,000,000 bytes.

parse_count("4Mi")          # 4_194_304
parse_bytes("80GiB")        # 85_899_345_920
"""

from __future__ import annotations

import re
from fractions import Fraction

from ds_accum.errors import UsageError

__all__ = ["LARGEST", "parse_bytes", "parse_count"]

LARGEST = 10**18
"""Past it a number is a slip of the hand, not a size of a training."""

_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "t": 10**12, "p": 10**15}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "pi": 2**50}
_NUMBER = re.compile(r"([0-9][0-9_,]{0,30}(?:\.[0-9]{1,18})?) ?([a-zA-Z]{0,3})", re.ASCII)


def parse_count(text: str, *, name: str = "the number") -> int:
    """A positive whole number: 1536, 1_536, 4M (10^6), 4Mi (2^20), 2B (10^9). Raises UsageError."""
    return _parse(text, {**_PREFIXES, **_BINARY}, name=name, example="1536, 4M (4,000,000) or 4Mi (4,194,304)")


def parse_bytes(text: str, *, name: str = "the memory") -> int:
    """A positive number of bytes: 80GB (10^9), 80GiB (2^30), or a plain number. Raises UsageError."""
    units = {prefix + "b": size for prefix, size in {**_PREFIXES, **_BINARY}.items() if prefix != "b"}
    return _parse(text, {"": 1, **units}, name=name, example="80GB, 74.5GiB or a number of bytes")


def _parse(text: str, units: dict[str, int], *, name: str, example: str) -> int:
    found = _NUMBER.fullmatch(text.strip())
    unit = None if found is None else units.get(found[2].lower())
    if found is None or unit is None:
        raise UsageError(f"{name} can't be {text[:40]!r}", remedy=f"write it like {example}")
    value = Fraction(found[1].replace("_", "").replace(",", "")) * unit
    if value.denominator != 1:
        raise UsageError(f"{name} {text[:40]} is not whole", remedy=f"write it like {example}")
    if not 1 <= value <= LARGEST:
        limit = "at least 1" if value < 1 else "at most 10^18"
        raise UsageError(f"{name} must be {limit}, not {text[:40]}", remedy=f"write it like {example}")
    return int(value)
