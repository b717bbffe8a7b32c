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
    if totals.per_rank is None or engine._accumulation.checked is totals:
        return
    engine._accumulation.checked = totals  # `flush` asks before its step does
    constants = {rank.constant for rank in totals.per_rank if rank.micro_batches}
    if len(constants) > 1:
        raise AccumulationError(
            f"ranks have weighted the window by different constants: {sorted(constants)}",
            remedy="make the same calls on every rank: begin_window, load_checkpoint and initial_tokens among them",
        )
    numbers = [rank.micro_batches for rank in totals.per_rank]
    fewest, most = min(numbers), max(numbers)
    if fewest == most:
        return
    report_misuse(
        engine,
        UnevenMicroBatchesError(
            f"ranks have different numbers of micro-batches in step {engine.global_steps + 1}: {fewest} on rank "
            f"{numbers.index(fewest)}, {most} on rank {numbers.index(most)}: where a backward communicates, those "
            "with more would wait for ever",
            remedy="give every rank as many; a micro-batch without a counted token (all labels ignored) weighs nothing",
        ),
    )
