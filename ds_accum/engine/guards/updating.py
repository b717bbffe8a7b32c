"""`optimizer.step()` past the engine: an update with gradients that are neither complete nor unscaled nor clipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ds_accum.engine.guards.reporting import report_misuse, where_in_window
from ds_accum.errors import MisuseError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["SteppedPastEngineError", "check_update"]


class SteppedPastEngineError(MisuseError):
    """The optimizer was stepped by the training loop."""


def check_update(engine: TokenWeightedEngine) -> None:
    """Before the optimizer steps."""
    if engine._accumulation.in_step:
        return
    report_misuse(
        engine,
        SteppedPastEngineError(
            f"optimizer.step() was called past the engine {where_in_window(engine)}: it would apply gradients that are "
            "not weighted, not unscaled and not clipped",
            remedy="call engine.step() after each backward; it steps the optimizer at the boundary",
        ),
    )
