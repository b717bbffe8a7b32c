"""How a loss enters the window: with its count and the denominator that undoes its mean, for the seed of its backward.

`engine.backward` and `engine.scale` are given the loss. A bare `loss.backward()` is announced by DeepSpeed when it is
under way: then the loss is that of the one forward which waits, and its seed is multiplied in where it comes by.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ds_accum.engine import deepspeed_private as private
from ds_accum.engine import opening
from ds_accum.engine.counting import as_count, denominator_of
from ds_accum.engine.graphs import backward_reaches
from ds_accum.engine.losses import SeenLoss
from ds_accum.engine.passing_through import passes_through
from ds_accum.engine.scalars import scalar
from ds_accum.engine.window import MicroBatch
from ds_accum.errors import CountError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["not_the_loss", "seed_bare_backward", "take_in", "take_in_bare"]


def take_in(
    engine: TokenWeightedEngine,
    loss: Tensor | SeenLoss,
    num_tokens: int | Tensor | None,
    *,
    divided_already: bool = False,
) -> Tensor:
    """Opens the window if need be and adds the loss to it; returns the loss's seed, a float64 scalar.

    Raises CountError, with nothing changed, where the number of tokens is not known.
    """
    state = engine._accumulation
    is_sum = state.settings.loss_reduction == "sum"
    pending = state.pending.only()
    if isinstance(loss, Tensor):
        of_forward = pending.loss if pending is not None else None
        loss = of_forward if of_forward is not None and of_forward.tensor is loss else SeenLoss(loss)
    if num_tokens is not None:
        count = as_count(num_tokens, state.device)
        state.pending.check(num_tokens)
    elif not state.window.by_token and not is_sum and (pending is None or pending.is_unknown_mean):
        # A mean of means needs no counts; without them the report has none.
        count = scalar(math.nan, state.device)
    else:
        pending = state.pending.required()
        assert pending.num_tokens is not None
        count = pending.num_tokens
    denominator = denominator_of(pending, loss, count, is_sum=is_sum, divided_already=divided_already)
    if not state.window.is_open:
        opening.open_window(engine, count)
    state.pending.clear()
    return state.window.add(
        MicroBatch(
            num_tokens=count,
            denominator=denominator,
            loss=loss.value,
            # A sum over no token is 0: one that is not finite is never harmless.
            zero_if_empty=not is_sum and _is_harmless_if_empty(engine, loss),
        )
    )


def _is_harmless_if_empty(engine: TokenWeightedEngine, loss: SeenLoss) -> bool:
    """Whether a mean over no token may be let pass. What can't be seen of it is left to the norm, where one is taken.

    But not in float16, where a gradient that is no number would move the loss scale.
    """
    if loss.zero_if_empty is not None:
        return loss.zero_if_empty
    takes_norm = private.takes_norm(engine, always=engine._accumulation.settings.report_norm == "always")
    return takes_norm and not engine.fp16_enabled()


def take_in_bare(engine: TokenWeightedEngine) -> Tensor:
    """The seed of a `loss.backward()` that no call of the engine came before."""
    state = engine._accumulation
    pending = state.pending.only() or state.pending.required()
    if pending.loss is None:
        raise CountError(
            "loss.backward() was called on a loss that is not in the model's output, so its count is not known",
            remedy="engine.backward(loss, num_tokens=n), or engine.scale(loss, num_tokens=n).backward()",
        )
    # A loss that nobody holds any more is asked for afterwards: whether its seed has come to it.
    if pending.loss.tensor is not None and not backward_reaches(pending.loss.tensor):
        raise not_the_loss()
    dtype = pending.loss.value.dtype
    if dtype in (torch.float16, torch.bfloat16):
        state.half.warn(dtype)
    return take_in(engine, pending.loss, None)


def seed_bare_backward(engine: TokenWeightedEngine, gradient: Tensor) -> Tensor:
    """Runs on the loss of every forward in training, after DeepSpeed's own hook on it."""
    state = engine._accumulation
    if engine._running_engine_backward or state.scaled:
        return gradient
    if state.bare_seed is None:
        if passes_through(engine):
            return gradient
        # DeepSpeed announces the first backward of a forward's output alone, and looks for it in few types.
        raise CountError(
            "loss.backward() was called once more on an output whose backward has been, or was refused, or on one that "
            "DeepSpeed does not look into (it knows tensors, tuples, lists and dicts)",
            remedy="engine.backward(loss, num_tokens=n), or another forward",
        )
    state.bare_seeded = True
    return gradient * state.bare_seed.to(gradient.dtype)


def not_the_loss() -> CountError:
    """For a `loss.backward()` that misses the loss that is waited for."""
    return CountError(
        "loss.backward() was called on something else than the loss in the model's output",
        remedy="engine.backward(loss, num_tokens=n), or engine.scale(loss, num_tokens=n).backward()",
    )
