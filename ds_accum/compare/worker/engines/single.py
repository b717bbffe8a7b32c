"""The truth: one process, float64, the mean loss over all counted tokens of the global batch.

gradient = sum over micro-batches of d(mean loss * its tokens) / all tokens;  clipped once, as torch does
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from ds_accum.compare.spec import Variant
from ds_accum.compare.worker.engines.protocol import (
    Context,
    Held,
    WindowOutcome,
    clip_coefficient,
    moved,
    optimizer_of,
)
from ds_accum.compare.worker.watch import Watch
from ds_accum.compare.worker.workloads import MicroBatch

__all__ = ["SingleProcessEngine"]


class SingleProcessEngine:
    """Trains on rank 0 alone, which is given the whole global batch; the others do nothing."""

    def __init__(self, variant: Variant, context: Context) -> None:
        self.name = variant.name
        self.training = context.training()
        self._clipping = context.spec.gradient_clipping
        self._here = context.ranks.is_first
        self._device = context.ranks.device
        self._model = self.training.model.to(device=self._device, dtype=torch.float64)
        self._optimizer = optimizer_of(context.spec, self._model)

    def train_window(
        self, batches: Sequence[MicroBatch], watch: Watch, after: Callable[[int], None] | None = None
    ) -> WindowOutcome:
        if not self._here:
            return WindowOutcome(loss_sum=0.0, num_tokens=0, grad_norm=None, clip_coefficient=None, applied=True)
        tokens = sum(batch.num_tokens for batch in batches)
        loss_sum = 0.0
        for index, batch in enumerate(batches):
            last = index == len(batches) - 1
            watch.enter("forward", boundary=last)
            # A mean over no token is not a number.
            mean = torch.nan_to_num(self.training.loss(self._model, moved(batch.inputs, self._device, torch.float64)))
            watch.enter("backward", boundary=last)
            torch.autograd.backward(mean * (batch.num_tokens / max(tokens, 1)))
            loss_sum += float(mean.detach()) * batch.num_tokens
            if after is not None and not last:
                after(index)
        watch.enter("update", boundary=True)
        norm = float(nn.utils.clip_grad_norm_(self._model.parameters(), self._clipping or float("inf")))
        self._optimizer.step()
        self._optimizer.zero_grad()
        watch.leave()
        return WindowOutcome(
            loss_sum=loss_sum,
            num_tokens=tokens,
            grad_norm=norm,
            clip_coefficient=clip_coefficient(norm, self._clipping),
            applied=True,
        )

    def parameters(self) -> Mapping[str, Tensor] | None:
        if not self._here:
            return None
        named = self._model.named_parameters()
        return {name: value.detach().cpu().clone() for name, value in named if value.requires_grad}

    def held(self) -> Held:
        if not self._here:
            return Held(parameters=(), gradients=(), optimizer_state=())
        parameters = list(self._model.parameters())
        return Held(
            parameters=parameters,
            gradients=[parameter.grad for parameter in parameters if parameter.grad is not None],
            optimizer_state=[
                value for state in self._optimizer.state.values() for value in state.values() if torch.is_tensor(value)
            ],
        )

    def close(self) -> None:
        self._optimizer.zero_grad()
