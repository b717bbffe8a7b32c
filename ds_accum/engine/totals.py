"""The one small collective of an optimizer step: what every rank's micro-batches add up to, known to all of them.

    gathering = Gathering(record, group)     # started before the last backward, 64 bytes a rank
    totals = gathering.wait()                # after it: the only time that the host reads the window's numbers

Up to 1,024 ranks it is an all-gather, so that the smallest, the largest and their ranks are known; beyond that two
reductions of the same size, and those fields are None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from deepspeed import comm
from torch import Tensor

__all__ = ["EMPTY_RECORD", "RECORD_FIELDS", "Gathering", "WindowTotals", "gather"]

RECORD_FIELDS = (
    "num_tokens",
    "loss_sum",
    "micro_batches",
    "nonfinite",
    "smallest_filled",
    "smallest",
    "largest",
    "constant",
)
"""What each rank contributes, as float64: 64 bytes."""

EMPTY_RECORD = (0.0, 0.0, 0.0, 0.0, math.inf, math.inf, 0.0, 0.0)
"""What a rank without a micro-batch contributes: it changes no sum, no minimum and no maximum."""

_MOST_RANKS_GATHERED = 1024


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
    """Fewest counted tokens of a micro-batch."""

    largest: float
    """Most counted tokens of a micro-batch."""

    constant: float
    """D, as the rank with the largest has it."""

    per_rank: tuple[RankTotals, ...] | None
    """Each rank's own part; None above 1,024 ranks."""

    @classmethod
    def of(cls, records: Sequence[Sequence[float]]) -> WindowTotals:
        """Adds up one record a rank."""
        columns = dict(zip(RECORD_FIELDS, zip(*records, strict=True), strict=True))
        return cls(
            tokens=sum(columns["num_tokens"]),
            num_tokens=_whole(sum(columns["num_tokens"])),
            loss_sum=sum(columns["loss_sum"]),
            micro_batches=round(sum(columns["micro_batches"])),
            nonfinite=round(sum(columns["nonfinite"])),
            smallest_filled=min(columns["smallest_filled"]),
            smallest=min(columns["smallest"]),
            largest=max(columns["largest"]),
            constant=max(columns["constant"]),
            per_rank=tuple(
                RankTotals(num_tokens=_whole(record[0]), micro_batches=round(record[2]), constant=record[7])
                for record in records
            ),
        )

    @property
    def is_even(self) -> bool:
        """Whether every micro-batch of every rank counts the same number of tokens."""
        return self.smallest == self.largest

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
    constant: float


class Gathering:
    """An exchange of records under way."""

    def __init__(self, record: Tensor, group: Any, micro_batches: int) -> None:
        self.micro_batches = micro_batches
        """How many micro-batches of this rank the record holds: one that came later needs another exchange."""
        self._ranks = comm.get_world_size(group)
        self._record = record
        if self._ranks <= _MOST_RANKS_GATHERED:
            self._gathered, work = gather(record, group)
            self._work = [work]
        else:
            self._gathered = record.clone()
            # Largest of (-smallest_filled, -smallest, largest, constant) at once.
            self._extremes = record[4:] * record.new_tensor([-1.0, -1.0, 1.0, 1.0])
            self._work = [
                comm.all_reduce(self._gathered, group=group, async_op=True),
                comm.all_reduce(self._extremes, op=comm.ReduceOp.MAX, group=group, async_op=True),
            ]

    def wait(self) -> WindowTotals:
        """The totals, read on the host once every rank has contributed."""
        for work in self._work:
            work.wait()
        if self._ranks <= _MOST_RANKS_GATHERED:
            return WindowTotals.of(self._gathered.tolist())
        both = torch.cat((self._gathered[:4], self._extremes)).tolist()
        num_tokens, loss_sum, micro_batches, nonfinite, smallest_filled, smallest, largest, constant = both
        return WindowTotals(
            tokens=num_tokens,
            num_tokens=_whole(num_tokens),
            loss_sum=loss_sum,
            micro_batches=round(micro_batches),
            nonfinite=round(nonfinite),
            smallest_filled=-smallest_filled,
            smallest=-smallest,
            largest=largest,
            constant=constant,
            per_rank=None,
        )


def gather(vector: Tensor, group: Any) -> tuple[Tensor, Any]:
    """Every rank's vector, as the rows of a matrix, once the work beside it has been waited for."""
    gathered = vector.new_empty(comm.get_world_size(group), vector.numel())
    return gathered, comm.all_gather(list(gathered.unbind()), vector, group=group, async_op=True)


def _whole(number: float) -> int | None:
    return round(number) if math.isfinite(number) else None
