"""One line at the start: what the engine does here, for whoever reads the log later."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ds_accum.engine import deepspeed_private as private

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["announce", "banner"]


def banner(engine: TokenWeightedEngine) -> str:
    """Normalization, where counts come from, what carries the late factor, and what is not checked."""
    from ds_accum import __version__

    state = engine._accumulation
    settings = state.settings
    if settings.normalization == "token":
        counted, loss = state.counter.source, settings.loss_reduction
        what = f"each step is the mean over all counted tokens ({counted}; losses are their {loss})"
    else:
        what = "each step is the mean of the micro-batches' means"
    notes = [f"weight carried by the {state.carrier.name}"]
    if state.needs_look_ahead:
        notes.append("begin_window needed, for Muon")
    if not private.takes_norm(engine, always=settings.report_norm == "always"):
        notes.append("not checked: gradients that are not finite, as no norm is taken")
    return f"ds-accum {__version__} on ZeRO {int(engine.zero_optimization_stage())}: {what}; {'; '.join(notes)}"


def announce(engine: TokenWeightedEngine) -> None:
    """Writes the banner to stderr on rank 0, whatever level DeepSpeed logs at."""
    if engine.global_rank == 0:
        sys.stderr.write(banner(engine) + "\n")
