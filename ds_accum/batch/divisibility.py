"""What to use instead when one integer does not divide another: the nearest multiples and the nearest divisors.

Every search is bounded, so that a batch size of 10^30 is answered as fast as one of 64.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from math import isqrt

__all__ = [
    "SEARCH_LIMIT",
    "Indivisible",
    "Neighbours",
    "divisor_above",
    "divisor_below",
    "divisors",
    "find_indivisible",
    "nearest_divisors",
    "nearest_multiples",
]

# Candidates tried on either side of the square root. 2^14 finds every divisor of any number below 2^28, far more
# samples than a batch holds, in about a millisecond; past that, a divisor that is not found soon is left unknown.
SEARCH_LIMIT = 2**14


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbours:
    """The nearest legal values around a number that isn't one: None where there is none, or none was found."""

    below: int | None
    above: int | None

    @property
    def values(self) -> tuple[int, ...]:
        """Those that are known, ascending."""
        return tuple(value for value in (self.below, self.above) if value is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Indivisible:
    """`dividend` is not a multiple of `divisor`; both are positive."""

    dividend: int
    divisor: int

    @property
    def remainder(self) -> int:
        """What is left over, from 1 to divisor - 1."""
        return self.dividend % self.divisor

    @property
    def below(self) -> int | None:
        """The largest positive multiple of the divisor below the dividend; None if the divisor exceeds it."""
        return self.dividend - self.remainder or None

    @property
    def above(self) -> int:
        """The smallest multiple of the divisor above the dividend."""
        return self.dividend - self.remainder + self.divisor


def find_indivisible(dividend: int, divisor: int) -> Indivisible | None:
    """The fault where `dividend` (positive) is not a multiple of `divisor` (positive), else None."""
    return Indivisible(dividend=dividend, divisor=divisor) if dividend % divisor else None


def nearest_multiples(value: int, divisor: int) -> Neighbours:
    """The positive multiples of `divisor` next to `value`, itself excluded. Both are positive."""
    return Neighbours(
        below=(value - 1) // divisor * divisor or None,
        above=value // divisor * divisor + divisor,
    )


def nearest_divisors(number: int, value: int) -> Neighbours:
    """The divisors of `number` next to `value`, itself excluded. Both are positive; see `divisor_above` for None."""
    return Neighbours(below=divisor_below(number, value), above=divisor_above(number, value))


def divisor_above(number: int, value: int) -> int | None:
    """The smallest divisor of `number` (positive) that exceeds `value` (0 or more); None if there is none.

    From 2^28 on None may also mean that none was found among `SEARCH_LIMIT` candidates.
    """
    start = value + 1
    root = isqrt(number)
    for candidate in islice(range(start, root + 1), SEARCH_LIMIT):
        if number % candidate == 0:
            return candidate
    if start + SEARCH_LIMIT <= root:
        return None
    # Past the square root it is faster to count the quotients down: the largest quotient gives the smallest divisor.
    for quotient in islice(range(min(root, number // start), 0, -1), SEARCH_LIMIT):
        if number % quotient == 0:
            return number // quotient
    return None


def divisor_below(number: int, value: int) -> int | None:
    """The largest divisor of `number` (positive) below `value` (positive); None as in `divisor_above`."""
    # Divisors come in pairs, and the partner of one below `value` lies above number / value.
    partner = divisor_above(number, number // value)
    return None if partner is None else number // partner


def divisors(number: int) -> tuple[int, ...] | None:
    """All divisors of a positive integer, ascending; None from 2^28 on, where the search would take too long."""
    root = isqrt(number)
    if root >= SEARCH_LIMIT:
        return None
    small = [candidate for candidate in range(1, root + 1) if number % candidate == 0]
    large = [number // candidate for candidate in reversed(small) if candidate * candidate != number]
    return (*small, *large)
