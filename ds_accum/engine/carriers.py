"""Carriers: for each optimizer wrapper of DeepSpeed, the one scalar that takes the late factor c along.

    c = divisor x D / T                     known at the boundary, once every rank's tokens are
    gradient / (loss_scale / c)             what the wrapper's own unscale-and-clip computes, at no cost

    ZeRO-1, 2, 3                            its loss scale, for the length of one step
    FP16_Optimizer, FP16_UnfusedOptimizer   its current scale, for the length of one step (ZeRO 0 in bf16 is one, too)
    BF16_Optimizer, torch's own             the number of ranks that the reduction divides by

The same objects know how their wrapper skips a step: along DeepSpeed's own path for an overflow, without its effect on
the loss scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar, Protocol

import torch

from ds_accum.engine import deepspeed_private as private
from ds_accum.engine.overriding import overriding

__all__ = ["Carrier", "carrier_of"]


class Carrier(Protocol):
    """How one optimizer wrapper takes the late factor along, and skips a step."""

    name: ClassVar[str]
    at_reduction: ClassVar[bool]
    """Whether the factor goes into the reduction; else into the step."""

    def loss_scale(self) -> float:
        """What losses are scaled by now."""
        ...

    def carrying(self, factor: float, /) -> Any:
        """A context for one step, in which the wrapper multiplies the gradient by the factor as well."""
        ...

    def skipping(self) -> Any:
        """A context for one step, in which the wrapper drops its gradients instead, and keeps its loss scale."""
        ...


class ZeroLossScale:
    """ZeRO-1, 2 and 3 (`DeepSpeedZeroOptimizer`, `DeepSpeedZeroOptimizer_Stage3`)."""

    name: ClassVar[str] = "loss scale of ZeRO"
    at_reduction: ClassVar[bool] = False

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def loss_scale(self) -> float:
        return float(self._optimizer.loss_scale)

    @contextmanager
    def carrying(self, factor: float) -> Iterator[None]:
        # DeepSpeed moves its dynamic scale before it unscales with it; a custom scale stands still meanwhile.
        scale = self.loss_scale() / factor
        with (
            overriding(self._optimizer, custom_loss_scaler=True, external_loss_scale=scale),
            private.refusing_invalid_norms(self._optimizer),
        ):
            yield

    @contextmanager
    def skipping(self) -> Iterator[None]:
        with private.overflowing_zero(self._optimizer):
            yield


class WrapperScale:
    """`FP16_Optimizer` and `FP16_UnfusedOptimizer`, which ZeRO 0 uses for fp16 and for bf16."""

    name: ClassVar[str] = "current scale of the 16-bit wrapper"
    at_reduction: ClassVar[bool] = False

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def loss_scale(self) -> float:
        return float(private.scale_holder(self._optimizer).cur_scale)

    @contextmanager
    def carrying(self, factor: float) -> Iterator[None]:
        optimizer, holder = self._optimizer, private.scale_holder(self._optimizer)
        before = holder.cur_scale
        scale = before / factor
        moves: list[bool] = []
        holder.cur_scale = scale
        try:
            # DeepSpeed moves its dynamic scale before it unscales with it; here the moves come after the step.
            with overriding(optimizer, _update_scale=moves.append), private.heeding_overflow(optimizer):
                yield
            if private.leaves_norm_scaled(optimizer) and not optimizer.overflow:
                optimizer._global_grad_norm = optimizer._global_grad_norm / scale
        finally:
            holder.cur_scale = before
            for skip in moves if private.moves_scale(optimizer) else ():
                optimizer._update_scale(skip)

    @contextmanager
    def skipping(self) -> Iterator[None]:
        optimizer = self._optimizer
        with (
            overriding(optimizer, overflow_checker=_AlwaysOverflows(), _update_scale=_nothing),
            private.heeding_overflow(optimizer),
        ):
            yield


class ReductionDivisor:
    """`BF16_Optimizer` and torch's own optimizers: what the reduction divides by is an argument of the engine's."""

    name: ClassVar[str] = "divisor of the reduction"
    at_reduction: ClassVar[bool] = True

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def loss_scale(self) -> float:
        return 1.0

    def carrying(self, _factor: float) -> Any:
        return nullcontext()  # it went into the reduction

    @contextmanager
    def skipping(self) -> Iterator[None]:
        optimizer = self._optimizer

        def drop(*_: Any, **__: Any) -> None:
            private.drop_bf16_gradients(optimizer)

        with overriding(optimizer, step=drop, overflow=True):
            yield


class _AlwaysOverflows:
    """Stands in for `CheckOverflow` while a step is skipped."""

    def has_overflow(self, *_: Any, **__: Any) -> bool:
        return True

    check = check_using_norm = has_overflow


def _nothing(*_: Any, **__: Any) -> None:
    return None


_CARRIERS: dict[private.OptimizerKind, Callable[[Any], Carrier]] = {
    "BF16_Optimizer": ReductionDivisor,
    "FP16_Optimizer": WrapperScale,
    "FP16_UnfusedOptimizer": WrapperScale,
    "DeepSpeedZeroOptimizer": ZeroLossScale,
    "DeepSpeedZeroOptimizer_Stage3": ZeroLossScale,
    "torch": ReductionDivisor,
}


def carrier_of(optimizer: torch.optim.Optimizer | Any) -> Carrier:
    """The carrier for the optimizer that `deepspeed.initialize` returned.

    Raises ConfigError for a wrapper that none is known for.
    """
    return _CARRIERS[private.kind_of(optimizer)](optimizer)
