"""AccumulationWindow: the state between two optimizer steps, and what its micro-batches add up to.

    S_rm  sum of the token losses of micro-batch m on rank r        n_rm  its counted tokens
    T     sum of n_rm over the window and all ranks                 wanted: g = (1/T) sum_rm dS_rm

DeepSpeed gives (1/divisor) sum_rm d(seed_rm loss_rm). With loss_rm = S_rm / denominator_rm and

    seed_rm = loss_scale x denominator_rm / D                       D: one constant for the window, on every rank

the optimizer's own unscaling has to divide by loss_scale / c, where c = divisor x D / T is known at the boundary.
Where the mean of means is asked for (`micro_batch`), each micro-batch weighs 1 instead of n_rm: its mean loss is summed
instead of S_rm, and T is the number of micro-batches. All else is the same.

Nothing here reads a number from the device: a window's numbers stay there until they are gathered, once.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ds_accum.engine.exchange import EMPTY_RECORD

__all__ = ["AccumulationWindow", "MicroBatch"]

_FIRST_ROWS = 16
"""More are made room for as they come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """What one loss contributes, on the device. Its numbers are copied: loops reduce the loss in place, to print it."""

    num_tokens: Tensor
    """n, a float64 scalar; NaN where it is not known, which only `micro_batch` allows."""

    denominator: Tensor
    """What the sum of token losses is divided by to give the loss: n for a mean, 1 for a sum; float64 as n is."""

    loss: Tensor
    """The loss itself, detached; of one element and any dtype."""

    zero_if_empty: bool
    """Whether the gradient of a mean over no token is known to be zero, as torch's cross entropy has it."""


@dataclass(slots=True)
class AccumulationWindow:
    """The micro-batches since the last optimizer step, on this rank.

    Their numbers are written into one table, which outlives the window (`next`). As scalars of their own, allocated
    while a micro-batch's activations are, they would lie above those in the heap: what is freed below them then is not
    used again as it was, and the next micro-batch works in memory that is cold, or mapped anew. On a CPU that cost more
    than all else here: up to a millisecond a micro-batch.
    """

    device: torch.device
    by_token: bool = True
    """Whether a micro-batch weighs its counted tokens; else 1."""

    loss_scale: float = 1.0
    """What losses are scaled by, from the first micro-batch to the update."""

    constant: Tensor | None = None
    """D, a float64 scalar; None until the window is open."""

    _table: Tensor = field(init=False)
    """[rows, 3], float64: num_tokens, denominator and loss of each micro-batch."""

    _zero_if_empty: list[bool] = field(init=False)
    """Of each micro-batch."""

    def __post_init__(self) -> None:
        self._table = torch.empty(_FIRST_ROWS, 3, dtype=torch.float64, device=self.device)
        self._zero_if_empty = []

    def next(self) -> AccumulationWindow:
        """An empty window of the same kind, in the same memory; this one is not to be used after it."""
        window = copy(self)
        window.loss_scale, window.constant, window._zero_if_empty = 1.0, None, []
        return window

    @property
    def micro_batches(self) -> int:
        """How many have been accumulated."""
        return len(self._zero_if_empty)

    @property
    def is_open(self) -> bool:
        """Whether a micro-batch has been accumulated."""
        return bool(self._zero_if_empty)

    def open(self, constant: Tensor, loss_scale: float) -> None:
        """Fixes what is the same for every micro-batch of the window."""
        assert not self.is_open, "a window is opened once"
        self.constant, self.loss_scale = constant, loss_scale

    def add(self, micro_batch: MicroBatch) -> Tensor:
        """Takes a micro-batch in; returns its seed, the gradient that its loss is propagated back with (float64)."""
        assert self.constant is not None, "the window is opened by its first micro-batch"
        row = self.micro_batches
        if row == len(self._table):
            self._table = torch.cat((self._table, torch.empty_like(self._table)))
        numbers = (micro_batch.num_tokens, micro_batch.denominator, micro_batch.loss.reshape(()))
        torch.stack(numbers, out=self._table[row])
        self._zero_if_empty.append(micro_batch.zero_if_empty)
        weight = micro_batch.denominator
        if not self.by_token:
            # The mean itself, where it is over nothing or over an unknown number.
            tokens = micro_batch.num_tokens
            weight = torch.where(tokens > 0, weight / tokens, 1.0)
        # One division: n x (1/D) is not 1 for many n = D.
        scaled = weight if self.loss_scale == 1.0 else weight * self.loss_scale
        return scaled / self.constant

    def record(self) -> Tensor:
        """This rank's part of the totals: one float64 for each of RECORD_FIELDS, on the device."""
        if self.constant is None or not self.is_open:
            return torch.tensor(EMPTY_RECORD, dtype=torch.float64, device=self.device)
        counts, denominators, losses = self._table[: self.micro_batches].unbind(1)
        sums, filled = losses * denominators, counts != 0
        if not self.by_token:
            # A sum of token losses and a mean are unlike things: with one count that is not known, all are means.
            means = torch.where(counts > 0, sums / counts, losses)
            sums = torch.where(counts.isnan().any(), means, sums)
        smallest, largest = counts.aminmax()
        fields = (
            counts.sum(),
            torch.where(filled, sums, 0.0).sum(),
            self._nonfinite(losses, filled).sum(dtype=torch.float64),
            counts.new_full((), float(self.micro_batches)),
            self.constant,
            largest,
            smallest,
            torch.where(filled, counts, torch.inf).amin(),
        )
        return torch.stack(fields)

    def _nonfinite(self, losses: Tensor, filled: Tensor) -> Tensor:
        """Which losses are infinite or no number, [m]; a mean over no token may be, where its gradient is zero."""
        nonfinite = losses - losses != 0
        if all(self._zero_if_empty):
            return nonfinite & filled
        if not any(self._zero_if_empty):
            return nonfinite
        return nonfinite & (filled | ~torch.tensor(self._zero_if_empty, device=filled.device))
