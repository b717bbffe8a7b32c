"""Opening a window: where its constant comes from, the first time and later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed import comm
from torch import Tensor

from ds_accum.engine.constant import Agreement, constant_near, declared_total
from ds_accum.engine.counting import as_count
from ds_accum.engine.guards.resizing import note_size
from ds_accum.engine.holding_back import hold_back
from ds_accum.engine.scalars import scalar
from ds_accum.errors import AccumulationError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["declare_window", "expected_micro_batches", "may_agree", "needs_agreement", "open_window"]


def expected_micro_batches(engine: TokenWeightedEngine) -> float:
    """Micro-batches of a whole window over all ranks, over the divisor that DeepSpeed applies to their sum."""
    state = engine._accumulation
    return float(engine.gradient_accumulation_steps() * comm.get_world_size(state.group) / state.divisor)


def needs_agreement(engine: TokenWeightedEngine) -> bool:
    """Whether the ranks have to agree on the constant of the window that is about to open."""
    state = engine._accumulation
    return not state.window.is_open and state.declared is None and may_agree(engine)


def may_agree(engine: TokenWeightedEngine) -> bool:
    """Whether ranks agree on the constant of a window that they don't declare; the same on every rank.

    In float16 they do so for each window, because a constant far from its tokens costs range.
    """
    state = engine._accumulation
    if not state.window.by_token or state.needs_look_ahead:
        return False
    if state.next_constant is None:
        return state.settings.initial_tokens is None
    return bool(engine.fp16_enabled())


def open_window(engine: TokenWeightedEngine, num_tokens: Tensor) -> None:
    """Opens the window of the engine for a first micro-batch with so many tokens."""
    state = engine._accumulation
    if state.needs_look_ahead and state.declared is None:
        raise AccumulationError(
            "the optimizer takes momentum of gradients before the step (Muon), when their weight is not known yet",
            remedy="declare the window's tokens before its first forward: engine.begin_window(num_tokens)",
        )
    state.window.open(_constant(engine, num_tokens), state.carrier.loss_scale())
    note_size(engine)
    if state.settings.reduction == "boundary":
        hold_back(engine)


def _constant(engine: TokenWeightedEngine, num_tokens: Tensor) -> Tensor:
    state, micro_batches = engine._accumulation, expected_micro_batches(engine)
    if not state.window.by_token:
        return scalar(micro_batches, state.device)
    if state.declared is not None:
        return state.declared.clamp(min=1.0) / state.divisor
    if needs_agreement(engine):
        agreement = state.agreement or Agreement(num_tokens, state.group)
        return agreement.constant(micro_batches=micro_batches, at_least=state.next_constant or 1.0)
    if state.next_constant is not None:
        return scalar(state.next_constant, state.device)
    assert state.settings.initial_tokens is not None
    return scalar(constant_near(state.settings.initial_tokens, micro_batches=micro_batches), state.device)


def declare_window(engine: TokenWeightedEngine, num_tokens: int | Tensor) -> None:
    """The total of the coming window, from what each rank declares."""
    state = engine._accumulation
    if state.window.is_open or state.declared is not None:
        number = state.window.micro_batches
        raise AccumulationError(
            f"begin_window came after {number} micro-batches of the window"
            if number
            else "begin_window was called twice before the first micro-batch of the window",
            remedy="call it once, before the window's first forward",
        )
    count = as_count(num_tokens, state.device)
    if state.agreement is not None:
        # A forward has begun to agree on a constant that the declaration gives.
        state.agreement.drop()
        state.agreement = None
    state.pending.begin_window()
    state.declared = declared_total(count, state.group, may_agree=may_agree(engine))
