"""Gradients dropped inside a window: `engine.zero_grad()`, `optimizer.zero_grad()`, `model.zero_grad()`.

Stock DeepSpeed keeps what ZeRO-2 and 3 have reduced already, and loses the rest: on stages 0 and 1 the step uses the
micro-batches that came afterwards, divided by the number of all; ZeRO-3 overwrites what it had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ds_accum.engine.guards.reporting import report_misuse, where_in_window
from ds_accum.errors import MisuseError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["GradientsZeroedError", "check_zeroing"]


class GradientsZeroedError(MisuseError):
    """Gradients of an open window were set to zero."""


def check_zeroing(engine: TokenWeightedEngine, function: str) -> None:
    """Before gradients are set to zero by anybody but the engine's step."""
    state = engine._accumulation
    if state.in_step or not state.window.is_open:
        return
    report_misuse(
        engine,
        GradientsZeroedError(
            f"{function} was called {where_in_window(engine)}: the micro-batches so far would be lost, but not "
            "their tokens, and on ZeRO-2/3 not even their gradients",
            remedy="leave it out: engine.step() zeroes gradients after each update",
        ),
    )
