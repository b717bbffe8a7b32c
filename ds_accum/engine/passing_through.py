"""Backwards that pass through an engine's model without being its own.

    generator.backward(criterion(discriminator(generator(noise))))      another engine's, through the discriminator
    torch.autograd.grad(loss, inputs, retain_graph=True)                one that asks for no parameter's gradient

DeepSpeed announces both to the engine as it announces its own. They are no micro-batch of it: no weight is given to
their gradients, which are on their way to somebody else, and no token is counted.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ds_accum.engine import deepspeed_private as private
from ds_accum.engine.graphs import leaves_parameters_out
from ds_accum.engine.guards.reporting import report_misuse, where_in_window
from ds_accum.errors import MisuseError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = [
    "TrainedByAnotherEngineError",
    "check_parameters_are_frozen",
    "is_of_another_engine",
    "passes_through",
    "propagating",
]


class TrainedByAnotherEngineError(MisuseError):
    """Another engine's backward leaves gradients in this engine's parameters."""


_propagating: weakref.WeakSet[TokenWeightedEngine] = weakref.WeakSet()
"""Engines whose `backward` is under way."""


@contextmanager
def propagating(engine: TokenWeightedEngine) -> Iterator[None]:
    """Around the backward of an engine."""
    _propagating.add(engine)
    try:
        yield
    finally:
        _propagating.discard(engine)


def passes_through(engine: TokenWeightedEngine) -> bool:
    """Whether the backward under way, which the engine did not begin, is none of its micro-batches."""
    if is_of_another_engine(engine):
        return True
    pending = engine._accumulation.pending.only()
    loss = pending.loss.tensor if pending is not None and pending.loss is not None else None
    return loss is not None and leaves_parameters_out(loss, engine._accumulation.parameters)


def is_of_another_engine(engine: TokenWeightedEngine) -> bool:
    """Whether the backward under way is one of another engine, of ours or of DeepSpeed's."""
    if any(other is not engine for other in _propagating):
        return True
    return private.is_backward_of_an_engine() and not engine._running_engine_backward


def check_parameters_are_frozen(engine: TokenWeightedEngine) -> bool:
    """In another engine's backward: returns whether this engine's parameters take no gradient of it, as they must."""
    if not any(parameter.requires_grad for parameter in engine._accumulation.parameters):
        return True
    report_misuse(
        engine,
        TrainedByAnotherEngineError(
            f"the backward of another engine passes through this one {where_in_window(engine)}, and would leave its "
            "gradients in this engine's parameters, with no token to weigh them by",
            remedy="freeze them around that forward and backward: engine.module.requires_grad_(False), then True",
        ),
    )
    return False
