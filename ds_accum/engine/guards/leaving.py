"""A window that is still open at the end: its micro-batches were computed for nothing."""

from __future__ import annotations

import atexit
import sys
import warnings
import weakref
from typing import TYPE_CHECKING

from ds_accum.engine.holding_back import drop_held_back

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["WindowLeftOpenWarning", "warn_if_left_open", "watch_exit"]


class WindowLeftOpenWarning(RuntimeWarning):
    """Micro-batches were accumulated and never applied."""


def warn_if_left_open(engine: TokenWeightedEngine) -> None:
    """When the engine is destroyed, and when the interpreter exits; once for a window."""
    drop_held_back(engine)
    lost = engine._accumulation.window.micro_batches
    if lost:
        engine._accumulation.start_window()
        warnings.warn(
            f"{lost} of {engine.gradient_accumulation_steps()} micro-batches of step {engine.global_steps + 1} were "
            "accumulated and never applied; call engine.flush() at the end of the data",
            WindowLeftOpenWarning,
            stacklevel=3,
        )


def watch_exit(engine: TokenWeightedEngine) -> None:
    """Has the interpreter look at the engine when it exits, if it is still there."""
    reference = weakref.ref(engine)

    def look() -> None:
        remaining = reference()
        # After an error that nobody caught, an open window is its consequence: the error is the last word.
        if remaining is not None and getattr(sys, "last_value", None) is None:
            warn_if_left_open(remaining)

    atexit.register(look)
    # The engine may be one of many in a process: what is gone needs no look.
    weakref.finalize(engine, atexit.unregister, look).atexit = False
