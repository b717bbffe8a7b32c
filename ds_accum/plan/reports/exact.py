"""Whole numbers in a report, with every digit, and in words where there would be too many."""

from __future__ import annotations

from ds_accum.batch.wording import LONGEST_SHOWN_BITS, show

__all__ = ["counted", "digits", "times"]


def digits(number: int) -> str:
    """3,145,728; past 128 bits "about 10^N"."""
    return f"{number:,}" if number.bit_length() <= LONGEST_SHOWN_BITS else show(number)


def times(number: int) -> str:
    """How often: never, once, 4 times."""
    return {0: "never", 1: "once"}.get(number, f"{digits(number)} times")


def counted(number: int, thing: str) -> str:
    """1 sample, 2 samples, 2 micro-batches."""
    ending = "" if number == 1 else "es" if thing.endswith("ch") else "s"
    return f"{digits(number)} {thing}{ending}"
