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

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["is_of_another_engine", "passes_through", "propagating"]


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
