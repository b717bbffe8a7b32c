"""The options of `ds-accum schedule` that are more than one integer, read digit by digit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from ds_accum.errors import UsageError

__all__ = ["TimesGiven", "read_by_stage", "read_bytes", "read_counts", "read_number", "read_share", "read_times"]

_BYTE_UNITS = {"": 1, "B": 1} | {
    f"{letter}{suffix}B": base**power
    for power, letter in enumerate("KMGT", 1)
    for suffix, base in (("", 1000), ("I", 1024))
}
_MOST_BYTES = 10**18
_MOST_DECIMALS = 9


@dataclass(frozen=True, kw_only=True, slots=True)
class TimesGiven:
    """Forward and, where they were given, backward of every stage, or one of each for all."""

    forward: tuple[Decimal, ...]
    backward: tuple[Decimal, ...] | None


def read_number(text: str, *, option: str) -> Decimal:
    """A number of at least 0. Raises UsageError."""
    try:
        number = Decimal(text.strip())
    except InvalidOperation as error:
        raise UsageError(f"{option}: {_shown(text)} is not a number", remedy="give one such as 0.02") from error
    if not number.is_finite() or number < 0:
        raise UsageError(f"{option}: {_shown(text)} is not a number of at least 0", remedy="give one such as 0.02")
    return number


def read_share(text: str, *, option: str) -> Fraction:
    """0.15 or 15%, exactly. Raises UsageError where it is no share from 0 to 1."""
    digits, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    number = read_number(digits, option=option)
    whole = 100 if percent else 1
    if number > whole:
        is_percentage = not percent and number <= 100
        raise UsageError(
            f"{option}: {_shown(text)} is more than the whole",
            remedy=f"{number} % is written {number}%" if is_percentage else "give a share below 1, such as 0.15 or 15%",
        )
    # The exponent first: a decimal may stand for a fraction that no memory holds.
    if number and number.adjusted() < -_MOST_DECIMALS:
        raise UsageError(
            f"{option}: {_shown(text)} is a share too small to matter", remedy="give 0, or a share such as 0.05"
        )
    return Fraction(number) / whole


def read_times(text: str) -> TimesGiven:
    """FORWARD or FORWARD/BACKWARD, one or several. Raises UsageError."""
    pairs = [word.split("/") for word in _words(text, option="--stage-times")]
    if any(len(pair) != len(pairs[0]) or len(pair) > 2 for pair in pairs):
        raise UsageError(
            f"--stage-times: {_shown(text)} has not for each stage a forward, or for each a forward/backward",
            remedy="as in 0.01,0.01,0.013 or 0.01/0.02,0.01/0.02,0.013/0.026",
        )
    numbers = [[read_number(time, option="--stage-times") for time in pair] for pair in pairs]
    return TimesGiven(
        forward=tuple(pair[0] for pair in numbers),
        backward=tuple(pair[1] for pair in numbers) if len(pairs[0]) == 2 else None,
    )


def read_by_stage(texts: Sequence[str], *, option: str) -> dict[int, Decimal]:
    """STAGE:NUMBER, each stage once. Raises UsageError."""
    found: dict[int, Decimal] = {}
    for text in texts:
        stage, colon, number = text.partition(":")
        if not colon or not stage.strip().isdecimal() or len(stage) > 9:
            raise UsageError(
                f"{option}: {_shown(text)} is not STAGE:NUMBER", remedy=f"as in {option} 2:1.3; the first stage is 0"
            )
        if int(stage) in found:
            raise UsageError(f"{option} names stage {int(stage)} twice", remedy="give it once")
        found[int(stage)] = read_number(number, option=option)
    return found


def read_counts(text: str, *, option: str) -> tuple[int, ...]:
    """Positive integers: 32, or 8,8,8,8. Raises UsageError."""
    words = _words(text, option=option)
    for word in words:
        if not word.isdecimal() or len(word) > 18 or int(word) < 1:
            raise UsageError(
                f"{option}: {_shown(word)} is not an integer of at least 1",
                remedy="as in 32, or 8,8,8,8 for each stage",
            )
    return tuple(map(int, words))


def read_bytes(text: str, *, option: str) -> tuple[int, ...]:
    """Sizes with or without a unit: 1.5GB, 2GiB, 34000000. Raises UsageError."""
    sizes = []
    for word in _words(text, option=option):
        digits = word.rstrip("BbKkMmGgTtIi ")
        unit = word[len(digits) :].strip().upper()
        if unit not in _BYTE_UNITS:
            raise UsageError(f"{option}: {_shown(word)} has no unit of bytes", remedy="as in 1.5GB, 2GiB or 34000000")
        number = read_number(digits, option=option)
        # The size first: a decimal may stand for an integer that no memory holds.
        if number.adjusted() > 18 or number * _BYTE_UNITS[unit] > _MOST_BYTES:
            raise UsageError(f"{option}: {_shown(word)} is more than any device holds", remedy="as in 1.5GB")
        size = number * _BYTE_UNITS[unit]
        sizes.append(int(size.to_integral_value(rounding="ROUND_CEILING")))
    return tuple(sizes)


def _words(text: str, *, option: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise UsageError(f"{option}: {_shown(text)} has an empty place", remedy="separate values with single commas")
    return words


def _shown(text: str) -> str:
    """Short enough for a message."""
    return repr(text if len(text) <= 40 else f"{text[:37]}...")
