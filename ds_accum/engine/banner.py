"""One line at the start: what the engine does here, for whoever reads the log later."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
        what = f"mean over all counted tokens, from {counted} and a loss that is their {loss}"
    else:
        what = "mean of the micro-batches' means"
    unchecked = []
    if engine.gradient_clipping() <= 0 and state.carrier.at_reduction and settings.report_norm != "always":
        unchecked.append("gradients that are not finite (no norm is taken)")
    return (
        f"ds-accum {__version__}: ZeRO {engine.zero_optimization_stage()}, {what}; "
        f"weight carried by the {state.carrier.name}; "
        + ("look-ahead required; " if state.needs_look_ahead else "")
        + f"not checked: {', '.join(unchecked) or 'nothing known'}"
    )


def announce(engine: TokenWeightedEngine) -> None:
    """Logs the banner on rank 0, through DeepSpeed's logger, after its own lines."""
    from deepspeed.utils import log_dist

    log_dist(banner(engine), ranks=[0])
