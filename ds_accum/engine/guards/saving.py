"""A checkpoint saved inside a window, or loaded into one: DeepSpeed saves no accumulated gradients, and keeps none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ds_accum.engine.guards.reporting import report_misuse, where_in_window
from ds_accum.errors import MisuseError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["CheckpointInsideWindowError", "check_checkpointing"]


class CheckpointInsideWindowError(MisuseError):
    """A checkpoint was saved or loaded between two micro-batches of one step."""


def check_checkpointing(engine: TokenWeightedEngine, function: str) -> None:
    """Before a checkpoint is saved or loaded."""
    done = engine._accumulation.window.micro_batches
    if not done:
        return
    report_misuse(
        engine,
        CheckpointInsideWindowError(
            f"{function} was called {where_in_window(engine)}: the gradients of {done} micro-batches would be lost, "
            "and their samples not seen again",
            remedy="save and load between windows, after engine.step() at the boundary, or call engine.flush() before",
        ),
    )
