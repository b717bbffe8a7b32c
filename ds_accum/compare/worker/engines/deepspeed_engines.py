"""DeepSpeed's engine, as it is and under ds-accum, with the config of the variant.

Both run the loop of every DeepSpeed script: forward, backward, step, for each micro-batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from ds_accum.compare.spec import Variant
from ds_accum.compare.worker.engines import deepspeed_tensors
from ds_accum.compare.worker.engines.protocol import (
    DTYPES,
    Context,
    Held,
    WindowOutcome,
    clip_coefficient,
    dtype_of,
    moved,
    optimizer_of,
)
from ds_accum.compare.worker.watch import Watch
from ds_accum.compare.worker.workloads import MicroBatch
from ds_accum.errors import UsageError

__all__ = ["StockEngine", "TokenEngine"]


class StockEngine:
    """`deepspeed.initialize`: a mean over ranks and micro-batches of each micro-batch's mean loss."""

    def __init__(self, variant: Variant, context: Context) -> None:
        self.name = variant.name
        self.training = context.training()
        self.device = context.ranks.device
        dtype = dtype_of(variant, context.spec)
        if dtype == "fp16":
            _require_fp16()
        self._inputs_dtype = DTYPES[dtype] if dtype != "fp32" else None
        self._coalesce = variant.coalesce
        self._here = context.ranks.is_first
        optimizer = optimizer_of(context.spec, self.training.model)
        config = deepcopy(dict(variant.config))
        self.engine: Any = self.initialize(model=self.training.model, optimizer=optimizer, config=config)
        self._names = {id(parameter): name for name, parameter in self.engine.module.named_parameters()}

    def initialize(self, **options: Any) -> Any:
        """The engine itself."""
        import deepspeed

        return deepspeed.initialize(**options)[0]

    def train_window(
        self, batches: Sequence[MicroBatch], watch: Watch, after: Callable[[int], None] | None = None
    ) -> WindowOutcome:
        loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)
        skipped = self.engine.skipped_steps
        with self._coalescing():
            for index, batch in enumerate(batches):
                last = index == len(batches) - 1
                watch.enter("forward", boundary=last)
                loss = self.training.loss(self.engine, moved(batch.inputs, self.device, self._inputs_dtype))
                watch.enter("backward", boundary=last)
                self.backward(loss, batch)
                loss_sum += torch.nan_to_num(loss.detach().double()) * batch.num_tokens
                if not self._coalesce:
                    watch.enter("update", boundary=last)
                    self.engine.step()
                    watch.leave()
                if after is not None and not last:
                    after(index)
        if self._coalesce:
            watch.enter("update", boundary=True)
            self.engine.set_gradient_accumulation_boundary(True)
            self.engine.step()
            watch.leave()
        norm, coefficient = self.norm_and_coefficient()
        return WindowOutcome(
            loss_sum=float(loss_sum),
            num_tokens=sum(batch.num_tokens for batch in batches),
            grad_norm=norm,
            clip_coefficient=coefficient,
            applied=self.engine.skipped_steps == skipped,
        )

    def backward(self, loss: Tensor, batch: MicroBatch) -> None:
        # A mean over no token is not a number.
        self.engine.backward(loss if batch.num_tokens else torch.nan_to_num(loss))

    def norm_and_coefficient(self) -> tuple[float | None, float | None]:
        """The gradient's norm as the engine reports it, and what its clipping made of it."""
        norm = self.engine.get_global_grad_norm()
        value = None if norm is None else float(norm)
        return value, clip_coefficient(value, float(self.engine.gradient_clipping() or 0.0))

    def parameters(self) -> Mapping[str, Tensor] | None:
        found = {}
        for parameter, master in deepspeed_tensors.master_parameters(self.engine):
            # One at a time: only the first rank keeps them.
            if self._here:
                found[self._names[id(parameter)]] = master.detach().double().cpu().clone()
        return found if self._here else None

    def held(self) -> Held:
        return deepspeed_tensors.held(self.engine)

    def close(self) -> None:
        with contextlib.suppress(Exception):  # after a failure it may be in no state to be ended
            self.engine.destroy()

    def _coalescing(self) -> contextlib.AbstractContextManager[Any]:
        if not self._coalesce:
            return contextlib.nullcontext()
        if not hasattr(self.engine, "coalesce_grad_reduction"):
            raise UsageError(
                "this DeepSpeed has no coalesce_grad_reduction",
                remedy="update it, or leave out the variants that coalesce",
            )
        context: contextlib.AbstractContextManager[Any] = self.engine.coalesce_grad_reduction()
        return context


class TokenEngine(StockEngine):
    """`ds_accum.initialize`: the mean over all counted tokens of the global batch."""

    def initialize(self, **options: Any) -> Any:
        import ds_accum

        return ds_accum.initialize(**options)[0]

    def backward(self, loss: Tensor, batch: MicroBatch) -> None:
        self.engine.backward(loss, num_tokens=batch.num_tokens)

    def norm_and_coefficient(self) -> tuple[float | None, float | None]:
        report = self.engine.last_step
        return report.grad_norm, report.clip_coefficient


def _require_fp16() -> None:
    from deepspeed.accelerator import get_accelerator

    if not get_accelerator().is_fp16_supported():
        raise UsageError(
            f"DeepSpeed does not train in fp16 on this {get_accelerator().device_name()}",
            remedy="compare in bf16 or fp32",
        )
