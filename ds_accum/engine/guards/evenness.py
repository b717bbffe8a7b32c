"""Ranks with different numbers of micro-batches, or other constants: told by the totals, which every rank has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ds_accum.engine.guards.reporting import report_misuse
from ds_accum.engine.totals import WindowTotals
from ds_accum.errors import AccumulationError, MisuseError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["UnevenMicroBatchesError", "check_evenness"]


class UnevenMicroBatchesError(MisuseError):
    """Some ranks have accumulated more micro-batches than others."""


def check_evenness(engine: TokenWeightedEngine, totals: WindowTotals) -> None:
    """At the boundary, on all ranks alike."""
    if totals.most_micro_batches and totals.smallest_constant != totals.constant:
        raise AccumulationError(
            "ranks have weighted the window by different constants: from "
            f"{totals.smallest_constant!r} to {totals.constant!r}",
            remedy="make the same calls on every rank: begin_window, load_checkpoint and initial_tokens among them",
        )
    fewest, most = totals.fewest_micro_batches, totals.most_micro_batches
    if fewest == most:
        return
    if totals.per_rank is None:
        found = f"from {fewest} to {most}"
    else:
        numbers = [rank.micro_batches for rank in totals.per_rank]
        found = f"{fewest} on rank {numbers.index(fewest)}, {most} on rank {numbers.index(most)}"
    error = UnevenMicroBatchesError(
        f"ranks have different numbers of micro-batches in step {engine.global_steps + 1}: {found}: where a backward "
        "communicates, those with more would wait for ever",
        remedy="give every rank as many; a micro-batch without a counted token (all labels ignored) weighs nothing",
    )
    if not fewest and engine.zero_optimization():
        # ZeRO has no step for a rank without a gradient: it fails there, and the others wait.
        raise error
    report_misuse(engine, error)
