"""The numbers of a pipeline, simulated where it is small enough, by formula where it is not: the same numbers."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_accum.errors import UsageError
from ds_accum.plan.pipeline import PipelineShape, bubble_share, stage_times, summarize_pipeline
from ds_accum.plan.pipeline.bubble import waiting_time
from ds_accum.plan.pipeline.summary import _by_formula
from tests.plan.pipeline.pipelines import equal_times, shapes, times_for


@settings(deadline=None)
@given(shapes(), st.data())
def test_the_formula_says_what_the_simulation_does(shape: PipelineShape, data: st.DataObject) -> None:
    times = data.draw(equal_times(shape.stages))
    waiting = waiting_time(shape, times)
    if waiting is None:
        return
    simulated = summarize_pipeline(shape, times)
    by_formula = _by_formula(shape, times, waiting)
    assert replace(simulated, timeline=None, bubble_share_without_boundary=None) == by_formula


@settings(deadline=None)
@given(shapes(), st.data())
def test_a_stage_computes_or_waits(shape: PipelineShape, data: st.DataObject) -> None:
    summary = summarize_pipeline(shape, data.draw(times_for(shape.stages)))
    assert all(stage.computing + stage.waiting == summary.step_time for stage in summary.stages)
    waiting = sum(stage.waiting for stage in summary.stages)
    assert summary.bubble_share == waiting / (shape.stages * summary.step_time)


def test_a_billion_micro_batches_are_answered_by_formula() -> None:
    summary = summarize_pipeline(PipelineShape(schedule="1f1b", stages=4, micro_batches=10**9))
    assert summary.timeline is None
    assert summary.bubble_share == bubble_share(4, 10**9) == Fraction(3, 10**9 + 3)
    assert summary.step_time == 3 * (10**9 + 3)
    assert [stage.in_flight for stage in summary.stages] == [4, 3, 2, 1]


def test_a_billion_micro_batches_with_unequal_stages_are_refused() -> None:
    with pytest.raises(UsageError, match="8000000000 passes"):
        summarize_pipeline(PipelineShape(schedule="1f1b", stages=4, micro_batches=10**9), stage_times(4, slow={2: 1.3}))


def test_a_billion_stages_are_refused_at_once() -> None:
    with pytest.raises(UsageError, match="1000000000 stages are more than the 10000"):
        summarize_pipeline(PipelineShape(schedule="1f1b", stages=10**9, micro_batches=1))
    assert bubble_share(10**9, 1) == 1 - Fraction(1, 10**9)
