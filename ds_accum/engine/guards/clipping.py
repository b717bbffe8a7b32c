"""Gradients clipped by hand: torch's own functions, wherever and however early they were imported.

Between micro-batches a clip weighs micro-batches by their order. At the boundary it is a second clip where
`gradient_clipping` is on; on ZeRO-1/2/3 it does nothing, because the gradients that count are elsewhere; and the 16-bit
wrappers hold scaled gradients, for which the threshold means something else. What remains is right: a plain torch
optimizer at the boundary with `gradient_clipping` off.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ds_accum.engine import deepspeed_private as private
from ds_accum.engine.guards.editing import renew_fingerprint
from ds_accum.engine.guards.reporting import report_misuse, where_in_window
from ds_accum.errors import MisuseError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["ClippedByHandError", "unwatch_clipping", "watch_clipping"]


class ClippedByHandError(MisuseError):
    """Gradients are clipped by the training loop, where DeepSpeed clips them, or can't be clipped."""


# id of a parameter -> the engine that trains it.
_ENGINES: weakref.WeakValueDictionary[int, TokenWeightedEngine] = weakref.WeakValueDictionary()
_watched = False


def watch_clipping(engine: TokenWeightedEngine) -> None:
    """Has torch's clipping functions ask before they touch gradients of the engine's parameters."""
    for parameter in engine.module.parameters():
        _ENGINES[id(parameter)] = engine
    global _watched
    if not _watched:
        _watched = True
        for name in ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_"):
            _ask_before(name)


def unwatch_clipping(engine: TokenWeightedEngine) -> None:
    """Once the engine is destroyed, its parameters may be clipped as anybody's."""
    for parameter in engine.module.parameters():
        if _ENGINES.get(id(parameter)) is engine:
            del _ENGINES[id(parameter)]


def _ask_before(name: str) -> None:
    """Puts a question before a function of torch's, for those too who hold it already.

    Each function is a closure around what it does without gradients (torch/nn/utils/clip_grad.py, `_no_grad`): the
    function stays, what it encloses is exchanged. A torch that makes it otherwise is left alone.
    """
    function: Any = getattr(nn.utils, name, None)
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    if "func" in names:
        cell = function.__closure__[names.index("func")]
        cell.cell_contents = _asking(cell.cell_contents, name)


def _asking(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(function)
    def asking(parameters: Tensor | Iterable[Tensor], *arguments: Any, **options: Any) -> Any:
        given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        engine = next((_ENGINES[id(parameter)] for parameter in given if id(parameter) in _ENGINES), None)
        if engine is None or engine._accumulation.clipping_by_hand:
            return function(given, *arguments, **options)
        _check(engine, name)
        # One of them calls another, and what they write is told already.
        engine._accumulation.clipping_by_hand = True
        try:
            return function(given, *arguments, **options)
        finally:
            engine._accumulation.clipping_by_hand = False
            renew_fingerprint(engine)

    return asking


def _check(engine: TokenWeightedEngine, function: str) -> None:
    state = engine._accumulation
    if not state.window.is_open or state.in_step:
        return
    if not state.reduced:
        cost = "each micro-batch would weigh by how much it was clipped, and no two stages of ZeRO do the same with it"
    elif private.kind_of(engine.optimizer) != "torch":
        cost = "here it would change nothing, or other numbers than those that are applied"
    elif engine.gradient_clipping() > 0:
        cost = f"gradient_clipping is {engine.gradient_clipping():g}, so that they would be clipped twice"
    else:
        return
    report_misuse(
        engine,
        ClippedByHandError(
            f"{function} was called on the engine's parameters {where_in_window(engine)}: {cost}",
            remedy='set "gradient_clipping" in the config and leave it to engine.step()',
        ),
    )
