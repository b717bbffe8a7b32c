"""AccumulationWindow: the state between two optimizer steps, and what its micro-batches add up to.

    S_rm  sum of the token losses of micro-batch m on rank r        n_rm  its counted tokens
    T     sum of n_rm over the window and all ranks                 wanted: g = (1/T) sum_rm dS_rm

DeepSpeed gives (1/divisor) sum_rm d(seed_rm loss_rm). With loss_rm = S_rm / denominator_rm and

    seed_rm = loss_scale x denominator_rm / D                       D: one constant for the window, on every rank

the optimizer's own unscaling has to divide by loss_scale / c, where c = divisor x D / T is known at the boundary.
Where the mean of means is asked for (`micro_batch`), each micro-batch weighs 1 instead of n_rm: its mean loss is summed
instead of S_rm, and T is the number of micro-batches. All else is the same.

Nothing here reads a number from the device: a window's numbers are scalars there until they are gathered, once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ds_accum.engine.totals import EMPTY_RECORD

__all__ = ["AccumulationWindow", "MicroBatch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """What one loss contributes. All tensors are float64 scalars on the device."""

    num_tokens: Tensor
    """n; NaN where it is not known, which only `micro_batch` allows."""

    denominator: Tensor
    """What the sum of token losses is divided by to give the loss: n for a mean, 1 for a sum."""

    loss: Tensor
    """The loss itself, detached; of one element."""

    zero_if_empty: bool
    """Whether the gradient of a mean over no token is known to be zero, as torch's cross entropy has it."""


@dataclass(slots=True)
class AccumulationWindow:
    """The micro-batches since the last optimizer step, on this rank."""

    device: torch.device
    by_token: bool = True
    """Whether a micro-batch weighs its counted tokens; else 1."""

    loss_scale: float = 1.0
    """What losses are scaled by, from the first micro-batch to the update."""

    constant: Tensor | None = None
    """D, a float64 scalar; None until the window is open."""

    micro_batches: list[MicroBatch] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Whether a micro-batch has been accumulated."""
        return bool(self.micro_batches)

    def open(self, constant: Tensor, loss_scale: float) -> None:
        """Fixes what is the same for every micro-batch of the window."""
        assert not self.is_open, "a window is opened once"
        self.constant, self.loss_scale = constant, loss_scale

    def add(self, micro_batch: MicroBatch) -> Tensor:
        """Takes a micro-batch in; returns its seed, the gradient that its loss is propagated back with (float64)."""
        assert self.constant is not None, "the window is opened by its first micro-batch"
        self.micro_batches.append(micro_batch)
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
        if self.constant is None or not self.micro_batches:
            return torch.tensor(EMPTY_RECORD, dtype=torch.float64, device=self.device)
        number = len(self.micro_batches)
        numbers = [micro_batch.num_tokens for micro_batch in self.micro_batches]
        numbers += [micro_batch.loss.reshape(()) for micro_batch in self.micro_batches]
        numbers += [micro_batch.denominator for micro_batch in self.micro_batches]
        # All in one operation: a window has few numbers, and each operation costs the same.
        counts, losses, denominators = torch.stack(numbers).view(3, number).unbind()
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
            counts.new_full((), float(number)),
            self.constant,
            largest,
            smallest,
            torch.where(filled, counts, torch.inf).amin(),
        )
        return torch.stack(fields)

    def _nonfinite(self, losses: Tensor, filled: Tensor) -> Tensor:
        """Which losses are infinite or no number, [m]; a mean over no token may be, where its gradient is zero."""
        nonfinite = losses - losses != 0
        zero_if_empty = [micro_batch.zero_if_empty for micro_batch in self.micro_batches]
        if all(zero_if_empty):
            return nonfinite & filled
        if not any(zero_if_empty):
            return nonfinite
        return nonfinite & (filled | ~torch.tensor(zero_if_empty, device=filled.device))
