"""The one small collective of an optimizer step: what every rank's micro-batches add up to, known to all of them.

    gathering = Gathering(record, group, micro_batches)   # started before the last backward, 64 bytes a rank
    totals = gathering.wait()                             # after it: the host reads the window's numbers, once

Above 1,024 ranks the exchange adds up on its way. Every check is made from that as well; only which rank it was is not
known, and `per_rank` is None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ds_accum.engine.exchange import EXTREMES, HIGHEST, SUMS, Exchange

__all__ = ["Gathering", "RankTotals", "WindowTotals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTotals:
    """The window over all ranks of the group that gradients are reduced over; the same on each of them."""

    tokens: float
    """Counted tokens as they were added up: not whole where a counter weighs tokens, NaN where one is not known."""

    num_tokens: int | None
    """Counted tokens; None where a micro-batch's count is not known, which only `micro_batch` allows."""

    loss_sum: float
    """Sum of all counted token losses; where counts are not known, of the micro-batches' mean losses."""

    micro_batches: int
    """Over all ranks."""

    nonfinite: int
    """Micro-batches whose loss is infinite or not a number, those excepted whose gradient is known to be zero."""

    smallest_filled: float
    """Fewest counted tokens of a micro-batch that has any; infinite if none has."""

    smallest: float
    """Fewest counted tokens of a micro-batch; infinite where none is known, and in a window without one."""

    largest: float
    """Most counted tokens of a micro-batch; minus infinity where none is known, and in a window without one."""

    constant: float
    """D, as the rank with the largest has it; 0 in a window without a micro-batch."""

    smallest_constant: float
    """D, as the rank with the smallest has it; the same unless ranks have parted."""

    fewest_micro_batches: int
    """Of the rank with the fewest."""

    most_micro_batches: int
    """Of the rank with the most."""

    counts_are_mixed: bool
    """Whether some ranks know how many tokens they have, and others don't: their losses are sums of unlike things."""

    per_rank: tuple[RankTotals, ...] | None
    """Each rank's own part; None above 1,024 ranks."""

    @classmethod
    def of(cls, records: Sequence[Sequence[float]]) -> WindowTotals:
        """Adds up one record a rank."""
        columns = list(zip(*records, strict=True))
        known = [[number for number in column if not math.isnan(number)] for column in columns]
        return cls.of_reduced(
            [sum(column) for column in columns[SUMS]],
            [max(column, default=-math.inf) for column in known[HIGHEST]],
            [min(column, default=math.inf) for column in known[EXTREMES]],
            per_rank=tuple(
                RankTotals(num_tokens=_whole(record[0]), micro_batches=round(record[3])) for record in records
            ),
        )

    @classmethod
    def of_reduced(
        cls,
        sums: Sequence[float],
        highest: Sequence[float],
        lowest: Sequence[float],
        *,
        per_rank: tuple[RankTotals, ...] | None = None,
    ) -> WindowTotals:
        """From what the ranks' records add up to, and the largest and the smallest of their further fields."""
        tokens, loss_sum, nonfinite, micro_batches = sums
        most, constant, largest = highest
        fewest, smallest_constant, _, smallest, smallest_filled = lowest
        return cls(
            tokens=tokens,
            num_tokens=_whole(tokens),
            loss_sum=loss_sum,
            micro_batches=round(micro_batches),
            nonfinite=round(nonfinite),
            smallest_filled=smallest_filled,
            smallest=smallest,
            largest=largest,
            constant=constant if most else 0.0,
            smallest_constant=smallest_constant if most else 0.0,
            most_micro_batches=round(most),
            fewest_micro_batches=round(fewest),
            # A count that is known is no infinity.
            counts_are_mixed=math.isnan(tokens) and largest >= 0,
            per_rank=per_rank,
        )

    @property
    def is_even(self) -> bool:
        """Whether every micro-batch of every rank counts the same number of tokens."""
        return self.num_tokens is not None and self.smallest == self.largest

    @property
    def weighting_skew(self) -> float | None:
        """The largest ratio of the weight that a mean of means gives a token to the right one.

        A token of a micro-batch with n tokens weighs 1 / (n x micro-batches) there, and 1 / T here.
        """
        if self.num_tokens is None or not math.isfinite(self.smallest_filled):
            return None
        return self.num_tokens / (self.smallest_filled * self.micro_batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTotals:
    """One rank's part of the window."""

    num_tokens: int | None
    micro_batches: int


class Gathering:
    """An exchange of what the ranks' windows hold, under way."""

    def __init__(self, record: Tensor, group: Any, micro_batches: int) -> None:
        self.micro_batches = micro_batches
        """How many micro-batches of this rank the record holds: one that came later needs another exchange."""
        self._exchange = Exchange(record, group)

    def wait(self) -> WindowTotals | None:
        """The totals, read on the host once every rank has contributed.

        None where a rank has contributed something else: it opens a window still, and every rank has to gather again.
        """
        self._exchange.wait()
        if self._exchange.rows is None:
            sums, highest, lowest = self._exchange.reduced()
            return None if lowest[0] < 0 else WindowTotals.of_reduced(sums, highest, lowest)
        records = self._exchange.rows.tolist()
        return None if any(record[3] < 0 for record in records) else WindowTotals.of(records)


def _whole(number: float) -> int | None:
    return round(number) if math.isfinite(number) else None
