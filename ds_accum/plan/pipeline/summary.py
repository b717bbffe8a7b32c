"""What a pipeline costs, in numbers: step time, bubble, and micro-batches in flight on each stage.

By simulation, with the timeline. A window with too many micro-batches to simulate is answered by formula where one
holds, without a timeline; tests hold that the two agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ds_accum.errors import UsageError
from ds_accum.plan.pipeline.bubble import waiting_time
from ds_accum.plan.pipeline.in_flight import micro_batches_in_flight
from ds_accum.plan.pipeline.shape import PipelineShape
from ds_accum.plan.pipeline.simulation import PipelineTimeline, require_simulable, simulate_pipeline
from ds_accum.plan.pipeline.times import StageTimes, stage_times

__all__ = ["PipelineSummary", "StageSummary", "summarize_pipeline"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StageSummary:
    """One stage in one accumulation window.

    `computing` and `waiting` add up to the step time; `in_flight` is the most micro-batches whose activations it holds
    at once, where a pass through one of v chunks counts 1 / v.
    """

    computing: Fraction
    waiting: Fraction
    in_flight: Fraction


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineSummary:
    """One accumulation window; times are in the unit of `times`. `timeline` is None where a formula answered.

    `bubble_share_without_boundary` is the share if the stages did not wait for each other at the accumulation boundary,
    None where only a simulation tells.
    """

    shape: PipelineShape
    times: StageTimes
    step_time: Fraction
    bubble_share: Fraction
    bubble_overhead: Fraction
    bubble_share_without_boundary: Fraction | None
    stages: tuple[StageSummary, ...]
    timeline: PipelineTimeline | None


def summarize_pipeline(shape: PipelineShape, times: StageTimes | None = None) -> PipelineSummary:
    """The numbers of a pipeline. Raises UsageError where it is too large to simulate and no formula holds."""
    times = stage_times(shape.stages) if times is None else times
    try:
        require_simulable(shape)
    except UsageError:
        waiting = waiting_time(shape, times) if times.stages == shape.stages else None
        if waiting is None:
            raise
        return _by_formula(shape, times, waiting)
    timeline = simulate_pipeline(shape, times)
    return PipelineSummary(
        shape=shape,
        times=times,
        step_time=timeline.step_time,
        bubble_share=timeline.bubble_share,
        bubble_overhead=timeline.bubble_overhead,
        bubble_share_without_boundary=timeline.bubble_share_without_boundary,
        stages=tuple(
            StageSummary(
                computing=stage.busy * timeline.tick,
                waiting=timeline.step_time - stage.busy * timeline.tick,
                in_flight=timeline.in_flight(number),
            )
            for number, stage in enumerate(timeline.stages)
        ),
        timeline=timeline,
    )


def _by_formula(shape: PipelineShape, times: StageTimes, waiting: Fraction) -> PipelineSummary:
    computing = shape.micro_batches * times.per_micro_batch[0]
    return PipelineSummary(
        shape=shape,
        times=times,
        step_time=computing + waiting,
        bubble_share=waiting / (computing + waiting),
        bubble_overhead=waiting / computing,
        bubble_share_without_boundary=None,
        stages=tuple(
            StageSummary(computing=computing, waiting=waiting, in_flight=micro_batches_in_flight(shape, stage))
            for stage in range(shape.stages)
        ),
        timeline=None,
    )
