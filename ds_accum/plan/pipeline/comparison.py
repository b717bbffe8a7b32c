"""The same stages and micro-batches under every schedule, each summarized or with why it can't run them."""

from __future__ import annotations

from dataclasses import dataclass

from ds_accum.errors import UsageError
from ds_accum.plan.pipeline.shape import SCHEDULES, PipelineShape
from ds_accum.plan.pipeline.summary import PipelineSummary, summarize_pipeline
from ds_accum.plan.pipeline.times import StageTimes, stage_times

__all__ = ["ScheduleOutcome", "compare_schedules"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleOutcome:
    """One schedule: its summary, or None and why not."""

    schedule: str
    summary: PipelineSummary | None
    refusal: str = ""


def compare_schedules(
    *, stages: int, micro_batches: int, virtual_stages: int | None = None, times: StageTimes | None = None
) -> tuple[ScheduleOutcome, ...]:
    """Every schedule with as many chunks a stage as asked for, where it takes that many, else with its own number.

    Raises UsageError where the stages or the micro-batches are no positive integers, whatever the schedule.
    """
    PipelineShape(schedule="gpipe", stages=stages, micro_batches=micro_batches)
    times = stage_times(stages) if times is None else times
    outcomes = []
    for schedule in SCHEDULES.values():
        least, most = schedule.chunks
        takes = virtual_stages is not None and most is None and virtual_stages >= least
        chunks = virtual_stages if takes and virtual_stages is not None else schedule.default_virtual_stages
        summary, refusal = None, ""
        try:
            shape = PipelineShape(
                schedule=schedule.name, stages=stages, micro_batches=micro_batches, virtual_stages=chunks
            )
            summary = summarize_pipeline(shape, times)
        except UsageError as error:
            refusal = str(error)
        outcomes.append(ScheduleOutcome(schedule=schedule.name, summary=summary, refusal=refusal))
    return tuple(outcomes)
