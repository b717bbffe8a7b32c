"""Reductions that a window holds back until the boundary, or gives up: `"reduction": "boundary"`.

DeepSpeed's own `coalesce_grad_reduction` is a context around one window; here it is entered when the window opens.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from ds_accum.engine import deepspeed_private as private

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["drop_held_back", "hold_back", "reduce_held_back"]


def hold_back(engine: TokenWeightedEngine) -> None:
    """Holds back ZeRO-2/3's reductions until `reduce_held_back`."""
    state = engine._accumulation
    if not engine.zero_optimization_partition_gradients():
        return  # reduced at the boundary alone, as it is
    if engine.inside_no_sync_ctxt:
        return  # the caller coalesces by himself
    state.coalescing = ExitStack()
    state.coalescing.enter_context(engine.coalesce_grad_reduction())


def reduce_held_back(engine: TokenWeightedEngine) -> None:
    """Reduces what the window held back, all at once."""
    state = engine._accumulation
    coalescing, state.coalescing = state.coalescing, None
    if coalescing is not None:
        coalescing.close()
        state.fingerprint = None  # the gradients have left the parameters


def drop_held_back(engine: TokenWeightedEngine) -> None:
    """Drops what the window held back. Nothing is reduced: the other ranks need not be there, or hold as much."""
    state = engine._accumulation
    if state.coalescing is None:
        return
    with private.reducing_nothing(engine):
        reduce_held_back(engine)
    for parameter in state.parameters:
        parameter.grad = None
