"""A loss scale that moves inside a window: its micro-batches are then added up in different units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ds_accum.engine.guards.reporting import report_misuse, where_in_window
from ds_accum.errors import MisuseError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["LossScaleMovedError", "check_loss_scale"]


class LossScaleMovedError(MisuseError):
    """The loss scale is not what it was at the window's first micro-batch."""


def check_loss_scale(engine: TokenWeightedEngine) -> None:
    """Before each further backward of a window, and before its step."""
    state = engine._accumulation
    if not state.window.is_open:
        return
    scale = state.carrier.loss_scale()
    before = state.window.loss_scale
    if scale != before:
        state.window.loss_scale = scale  # told once
        report_misuse(
            engine,
            LossScaleMovedError(
                f"the loss scale went from {before:g} to {scale:g} {where_in_window(engine)}: the "
                "micro-batches of the window are scaled differently",
                remedy="change it between windows, after engine.step() at the boundary",
            ),
        )
