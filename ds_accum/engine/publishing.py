"""Where a step's report goes: the step log, and DeepSpeed's own monitor with its TensorBoard, W&B and CSV writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["MONITORED", "publish"]

MONITORED = (
    "loss",
    "num_tokens",
    "grad_norm",
    "clip_coefficient",
    "weighting_skew",
    "max_rank_tokens",
    "min_rank_tokens",
    "seconds",
)
"""Fields of a report that go to the monitor, as Train/ds_accum/FIELD. DeepSpeed writes lr and loss scale itself."""


def publish(engine: TokenWeightedEngine) -> None:
    """Writes the report of the last step where the config asks for it, on rank 0; elsewhere it is not even made."""
    log = engine._accumulation.log
    monitored = engine.monitor.enabled and engine.global_rank == 0
    report = engine.last_step if log is not None or monitored else None
    if report is None:
        return
    if log is not None:
        log.write(report)
    if monitored:
        # Against samples, as DeepSpeed's own series are.
        events = [(f"Train/ds_accum/{name}", getattr(report, name), engine.global_samples) for name in MONITORED]
        events.append(("Train/ds_accum/skipped_steps", engine.skipped_steps, engine.global_samples))
        engine.monitor.write_events([event for event in events if event[1] is not None])
