"""Accumulation or micro-batch size changed inside a window: the boundary moves while the loop is on its way to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ds_accum.engine.guards.reporting import report_misuse, where_in_window
from ds_accum.errors import MisuseError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["WindowResizedError", "check_resizing", "check_size"]


class WindowResizedError(MisuseError):
    """The batch settings of a window changed while it was open."""


def check_resizing(engine: TokenWeightedEngine, function: str) -> None:
    """Before a call that changes the batch."""
    if engine._accumulation.window.is_open:
        _report(engine, f"{function} was called {where_in_window(engine)}")


def check_size(engine: TokenWeightedEngine) -> None:
    """Before the window's step: whether the accumulation steps are what they were at its first micro-batch."""
    state, steps = engine._accumulation, engine.gradient_accumulation_steps()
    if state.window.is_open and steps != state.opened_for:
        before, state.opened_for = state.opened_for, steps
        _report(engine, f"gradient_accumulation_steps went from {before} to {steps} {where_in_window(engine)}")


def _report(engine: TokenWeightedEngine, fact: str) -> None:
    report_misuse(
        engine,
        WindowResizedError(
            f"{fact}: this step has neither the old number of micro-batches nor the new one",
            remedy="change the batch between windows, after engine.step() at the boundary",
        ),
    )
