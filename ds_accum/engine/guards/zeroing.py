"""Gradients dropped inside a window: `engine.zero_grad()`, `optimizer.zero_grad()`, and `model.zero_grad()` at its end.

Between micro-batches the module's own is seen as an edit of its gradients (`editing`).

Stock DeepSpeed keeps what ZeRO-2 and 3 have reduced already, and loses the rest: on stages 0 and 1 the step uses the
micro-batches that came afterwards, divided by the number of all; ZeRO-3 overwrites what it had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ds_accum.engine.guards.reporting import report_misuse, where_in_window
from ds_accum.errors import MisuseError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["GradientsZeroedError", "check_gradients_are_left", "check_zeroing"]


class GradientsZeroedError(MisuseError):
    """Gradients of an open window were set to zero."""


def check_zeroing(engine: TokenWeightedEngine, function: str) -> None:
    """Before gradients are set to zero by anybody but the engine's step."""
    state = engine._accumulation
    if state.in_step or not state.window.is_open:
        return
    _report(engine, f"{function} was called")
    # That the gradients have changed is told now.
    state.fingerprint = None


def check_gradients_are_left(engine: TokenWeightedEngine) -> None:
    """Before the update of an optimizer that takes the parameters' gradients: those that were there must be still."""
    state = engine._accumulation
    if state.fingerprint is None or engine.zero_optimization():
        return
    marks = state.fingerprint[0]
    for name, parameter, mark in zip(state.parameter_names, state.parameters, marks, strict=True):
        if mark is not None and parameter.grad is None:
            _report(engine, f'the gradient of "{name}" was dropped')
            return


def _report(engine: TokenWeightedEngine, fact: str) -> None:
    report_misuse(
        engine,
        GradientsZeroedError(
            f"{fact} {where_in_window(engine)}: the micro-batches so far would be lost, but not their tokens, and on "
            "ZeRO-2/3 not even their gradients",
            remedy="leave it out: engine.step() zeroes gradients after each update",
        ),
    )
