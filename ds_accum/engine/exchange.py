"""Exchange: one record a rank, known to all of them; what each of the engine's small collectives is made of.

    exchange = Exchange(record, group)      # started, 64 bytes a rank
    exchange.wait()                         # every rank has contributed

Up to 1,024 ranks it is an all-gather, so that each rank's own part is known. Beyond that it is two all-reduces: one
adds up tokens, losses, micro-batches and losses that are not finite (32 bytes a rank), one finds the extremes of the
rest and of the number of micro-batches (64 bytes a rank).

A record says what it is for. Ranks that have parted, of which one flushes while another opens a window, meet in one
exchange all the same: they see that it was for different things, and whoever can't go on with that exchanges once more.
Collectives of different kinds would wait for each other, or read what was meant for something else.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from deepspeed import comm
from torch import Tensor

__all__ = [
    "AGREEING",
    "DECLARING",
    "EMPTY_RECORD",
    "EXTREMES",
    "HIGHEST",
    "RECORD_FIELDS",
    "SUMS",
    "Exchange",
    "Said",
    "extremes_of",
    "gather",
]

RECORD_FIELDS = (
    "num_tokens",
    "loss_sum",
    "nonfinite",
    "micro_batches",
    "constant",
    "largest",
    "smallest",
    "smallest_filled",
)
"""What each rank contributes, as float64: 64 bytes. The first four add up; of the last five, extremes count."""

EMPTY_RECORD = (0.0, 0.0, 0.0, 0.0, math.nan, math.nan, math.nan, math.nan)
"""What a rank without a micro-batch contributes: it changes no sum, and what is no number is no extreme."""

AGREEING, DECLARING = -1.0, -2.0
"""Instead of a number of micro-batches: the record is no window's, but a rank's first count (`Agreement`), or what it
declares for the coming window (`begin_window`)."""

SUMS, EXTREMES, HIGHEST = slice(0, 4), slice(3, 8), slice(3, 6)
"""Of a record's fields, those that are added up, and those of which the smallest and the largest count."""

_MOST_RANKS_GATHERED = 1024


class Said(NamedTuple):
    """What the ranks said for one purpose: float64 scalars on the device."""

    total: Tensor
    ranks: Tensor
    """How many they were."""

    largest: Tensor
    smallest: Tensor


class Exchange:
    """An exchange of records under way, [8] a rank."""

    def __init__(self, record: Tensor, group: Any) -> None:
        self._number = comm.get_world_size(group)
        self.rows: Tensor | None = None
        """[ranks, 8], once it has been waited for; None above 1,024 ranks."""
        if self._number <= _MOST_RANKS_GATHERED:
            self.rows, work = gather(record, group)
            self._work = [work]
        else:
            self._sums, self._extremes = record[SUMS].clone(), extremes_of(record)
            self._work = [
                comm.all_reduce(self._sums, group=group, async_op=True),
                comm.all_reduce(self._extremes, op=comm.ReduceOp.MAX, group=group, async_op=True),
            ]

    @classmethod
    def of_count(cls, purpose: float, num_tokens: Tensor, group: Any) -> Exchange:
        """For AGREEING or DECLARING: one number of tokens a rank, a float64 scalar."""
        record = num_tokens.new_tensor(EMPTY_RECORD)
        record[0] = record[5:7] = num_tokens
        record[3] = purpose
        return cls(record, group)

    def wait(self) -> None:
        """Until every rank has contributed, in the order of the device; the host need not have it yet."""
        for work in self._work:
            work.wait()

    def reduced(self) -> tuple[list[float], list[float], list[float]]:
        """The sums, and the highest and the lowest of EXTREMES, read on the host; without `rows`."""
        both = torch.cat((self._sums, self._extremes)).tolist()
        return both[:4], both[4:7], [-number for number in both[7:]]

    def said(self, purpose: float) -> Said:
        """What was said for this purpose, by the ranks that meant it."""
        if self.rows is None:
            return Said(
                self._sums[0], self._sums.new_full((), float(self._number)), self._extremes[2], -self._extremes[6]
            )
        counts, meant = self.rows[:, 0], self.rows[:, 3] == purpose
        return Said(
            torch.where(meant, counts, 0.0).sum(),
            meant.sum(dtype=torch.float64),
            torch.where(meant, counts, -torch.inf).amax(),
            torch.where(meant, counts, torch.inf).amin(),
        )

    def constant(self) -> Tensor:
        """D of a rank whose window is open, 0 where there is none: a float64 scalar on the device."""
        constant = self._extremes[1] if self.rows is None else self.rows[:, 4].nan_to_num(nan=0.0).amax()
        return constant.clamp(min=0.0)

    def is_met_by_agreement(self) -> bool:
        """Whether a rank that did not mean to agree has met one that did; read on the host."""
        if self.rows is None:
            return float(self._extremes[0]) == AGREEING
        return bool((self.rows[:, 3] == AGREEING).any())


def extremes_of(record: Tensor) -> Tensor:
    """What the maximum over all ranks is taken of, [8]: where the highest counts, and the negatives of all extremes."""
    extremes = torch.cat((record[HIGHEST], -record[EXTREMES]))
    return extremes.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)


def gather(vector: Tensor, group: Any) -> tuple[Tensor, Any]:
    """Every rank's vector, as the rows of a matrix, once the work beside it has been waited for."""
    gathered = vector.new_empty(comm.get_world_size(group), vector.numel())
    return gathered, comm.all_gather(list(gathered.unbind()), vector, group=group, async_op=True)
