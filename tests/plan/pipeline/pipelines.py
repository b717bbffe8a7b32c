"""Pipelines for property tests: any schedule with sizes it can run, and times of its stages."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import strategies as st

from ds_accum.plan.pipeline import SCHEDULES, PipelineShape, StageTimes, stage_times

__all__ = ["equal_times", "shapes", "times_for"]


@st.composite
def shapes(draw: st.DrawFn, *, schedules: tuple[str, ...] = tuple(SCHEDULES), most_stages: int = 7) -> PipelineShape:
    """A pipeline that its schedule can run."""
    schedule = SCHEDULES[draw(st.sampled_from(sorted(schedules)))]
    stages = draw(st.integers(1, most_stages))
    least, most = schedule.chunks
    virtual_stages = draw(st.integers(least, 4 if most is None else most))
    micro_batches = draw(st.integers(1, 12))
    if schedule.name == "dualpipev":
        micro_batches += 2 * stages
    elif schedule.name == "interleaved" or (schedule.placement == "loop" and virtual_stages > 1):
        micro_batches *= stages
    return PipelineShape(
        schedule=schedule.name, stages=stages, micro_batches=micro_batches, virtual_stages=virtual_stages
    )


def lengths() -> st.SearchStrategy[Fraction]:
    """Times as a user gives them, in tenths."""
    return st.integers(1, 40).map(lambda tenths: Fraction(tenths, 10))


@st.composite
def times_for(draw: st.DrawFn, stages: int) -> StageTimes:
    """Each stage its own."""
    return stage_times(
        stages,
        forward=draw(st.lists(lengths(), min_size=stages, max_size=stages)),
        backward=draw(st.lists(lengths(), min_size=stages, max_size=stages)),
        transfer=draw(st.integers(0, 10)) / 10,
        weight_share=draw(st.sampled_from([Fraction(1, 2), Fraction(1, 3), Fraction(3, 5)])),
    )


@st.composite
def equal_times(draw: st.DrawFn, stages: int) -> StageTimes:
    """The same for every stage, and transfers that take none."""
    return stage_times(
        stages,
        forward=draw(lengths()),
        backward=draw(lengths()),
        weight_share=draw(st.sampled_from([Fraction(1, 2), Fraction(1, 3), Fraction(2, 3)])),
    )
