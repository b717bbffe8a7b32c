"""D, the window's constant: what a micro-batch's weight is divided by before the total is known.

Any constant gives the same gradient, because the late factor c = divisor x D / T takes it out again. It is chosen so
that c is 1 where it can be: D = T / divisor as the last window had it, if all its micro-batches counted the same number
of tokens (then every factor is what stock DeepSpeed's is), else a power of two near it, which is exact in binary and
keeps float16 in its range. It has to be the same on every rank; the first window agrees on it by one collective over
the first micro-batch's counts, unless it is declared.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ds_accum.engine.exchange import AGREEING, DECLARING, Exchange
from ds_accum.engine.totals import WindowTotals

__all__ = ["Agreement", "constant_after", "constant_near", "declared_total", "power_of_two_near"]


def power_of_two_near(number: float) -> float:
    """The power of two nearest to a positive number on a logarithmic scale; 1.0 for what is no positive number."""
    return 2.0 ** round(math.log2(number)) if 0 < number < math.inf else 1.0


def constant_near(tokens_per_micro_batch: float, *, micro_batches: float) -> float:
    """D for a declared number of tokens: exact, as if every micro-batch counted just these."""
    return max(tokens_per_micro_batch, 1.0) * micro_batches


def constant_after(totals: WindowTotals, *, micro_batches: float, of: float) -> float | None:
    """D for the window after one with these totals; None if that one counted no token.

    `micro_batches` is the number that a window has, over all ranks and divided by the divisor that DeepSpeed applies;
    `of` the number that the last window had, over all ranks.
    """
    if not totals.num_tokens or not of:
        return None
    if totals.is_even:
        return totals.largest * micro_batches
    return power_of_two_near(totals.num_tokens / of * micro_batches)


class Agreement:
    """The first micro-batch's counts of every rank, on their way to a constant that all ranks share.

    Nothing is read on the host: the constant is made where the counts arrive.
    """

    def __init__(self, num_tokens: Tensor, group: Any) -> None:
        self._exchange = Exchange.of_count(AGREEING, num_tokens, group)

    def drop(self) -> None:
        """Ends the exchange without an answer. Other ranks may have exchanged something else in it."""
        self._exchange.wait()

    def constant(self, *, micro_batches: float, at_least: float = 1.0) -> Tensor:
        """D for windows of so many micro-batches, as in `constant_after`: a float64 scalar on the device.

        `at_least` is what the last window asks for: in float16 a constant that is too small overflows where the first
        micro-batch is an exception. A rank that comes late takes the constant that the others have opened with.
        """
        self._exchange.wait()
        said, opened = self._exchange.said(AGREEING), self._exchange.constant()
        near = (said.total / said.ranks * micro_batches).clamp(min=1.0)
        power = torch.pow(2.0, torch.round(torch.log2(near)))
        even = (said.smallest == said.largest) & (said.largest > 0)
        agreed = torch.where(even, said.largest * micro_batches, power).clamp(min=at_least)
        return torch.where(opened > 0, opened, agreed)


def declared_total(num_tokens: Tensor, group: Any, *, may_agree: bool) -> Tensor:
    """The sum of what every rank declares for the coming window: a float64 scalar on the device.

    `may_agree`: another rank may have begun to agree on a constant before it declares, so that it comes one exchange
    later. Only then the host waits.
    """
    while True:
        exchange = Exchange.of_count(DECLARING, num_tokens, group)
        exchange.wait()
        if not may_agree or not exchange.is_met_by_agreement():
            return exchange.said(DECLARING).total
