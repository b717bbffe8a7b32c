"""What becomes of a misuse: raised, warned about or counted, as `ds_accum.on_misuse` says."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ds_accum.errors import MisuseError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["report_misuse", "where_in_window"]


def report_misuse(engine: TokenWeightedEngine, error: MisuseError) -> None:
    """Counts a misuse for the step's report, then raises it or warns; before harm is done where that is possible."""
    state = engine._accumulation
    name = type(error).__name__
    state.misuses[name] = state.misuses.get(name, 0) + 1
    if state.settings.on_misuse == "raise":
        raise error
    if state.settings.on_misuse == "warn":
        warnings.warn(str(error), RuntimeWarning, stacklevel=3)


def where_in_window(engine: TokenWeightedEngine) -> str:
    """Where the loop is, for a message: "after micro-batch 2 of 4 of step 17"."""
    done, whole = engine._accumulation.window.micro_batches, engine.gradient_accumulation_steps()
    step = engine.global_steps + 1
    return (
        f"after micro-batch {done} of {whole} of step {step}"
        if done
        else f"before the first micro-batch of step {step}"
    )
