"""The fewest micro-batches below a bubble share: no fewer do, whatever the schedule and the times."""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ds_accum.errors import UsageError
from ds_accum.plan.pipeline import (
    SCHEDULES,
    PipelineShape,
    fill_pipeline,
    simulate_pipeline,
    smallest_micro_batches,
    stage_times,
)
from tests.plan.pipeline.pipelines import shapes, times_for


def chunks(schedule: str) -> int:
    return SCHEDULES[schedule].default_virtual_stages


def test_seventeen_for_15_percent_on_four_stages() -> None:
    assert fill_pipeline(schedule="1f1b", stages=4, max_bubble=0.15).micro_batches == 17


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 100), st.sampled_from(["gpipe", "1f1b", "interleaved"]))
def test_with_equal_stages_it_is_the_formula(stages: int, virtual_stages: int, percent: int, schedule: str) -> None:
    virtual_stages = virtual_stages + 1 if schedule == "interleaved" else 1
    filled = fill_pipeline(
        schedule=schedule, stages=stages, max_bubble=Fraction(percent, 100), virtual_stages=virtual_stages
    )
    assert filled.micro_batches == smallest_micro_batches(stages, Fraction(percent, 100), virtual_stages)


@settings(deadline=None, max_examples=50)
@given(shapes(most_stages=3), st.data())
def test_no_legal_number_below_it_is_enough(shape: PipelineShape, data: st.DataObject) -> None:
    times = data.draw(times_for(shape.stages))
    most = data.draw(st.sampled_from([Fraction(1, 3), Fraction(1, 2), Fraction(3, 4)]))
    try:
        filled = fill_pipeline(
            schedule=shape.schedule,
            stages=shape.stages,
            max_bubble=most,
            virtual_stages=shape.virtual_stages,
            times=times,
        )
    except UsageError as refused:
        if "more are not tried" in str(refused):
            return
        # The limit without end is above what is asked for, or just as large.
        pace = max(times.per_micro_batch)
        if shape.schedule == "gpipe":
            pace = max(times.forward) + max(times.backward)
        assert 1 - sum(times.per_micro_batch) / (shape.stages * pace) >= most
        return
    assume(filled.micro_batches < 60)
    assert simulate_pipeline(filled, times).bubble_share <= most
    for fewer in range(1, filled.micro_batches):
        try:
            smaller = replace(filled, micro_batches=fewer)
        except UsageError:
            continue
        assert simulate_pipeline(smaller, times).bubble_share > most


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_a_tiny_share_is_answered_at_once_where_a_formula_holds(schedule: str) -> None:
    start = time.process_time()
    filled = fill_pipeline(schedule=schedule, stages=4, max_bubble=1e-9, virtual_stages=chunks(schedule))
    assert filled.micro_batches > 4 * 10**8
    assert time.process_time() - start < 1


def test_a_slow_stage_sets_a_floor_that_is_said() -> None:
    with pytest.raises(UsageError, match="stays above 0.173 .* stage 2, and can't be 0.1") as refused:
        fill_pipeline(schedule="1f1b", stages=4, max_bubble=0.1, times=stage_times(4, slow={2: 1.3}))
    assert refused.value.remedy is not None
    assert "stage 2 fewer layers" in refused.value.remedy


def test_just_above_the_floor_the_search_ends() -> None:
    times = stage_times(4, slow={2: 1.3})
    start = time.process_time()
    with pytest.raises(UsageError, match="and more are not tried"):
        fill_pipeline(schedule="1f1b", stages=4, max_bubble=Fraction(9, 52) + Fraction(1, 10**7), times=times)
    assert time.process_time() - start < 15


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_no_bubble_at_all_is_refused_but_on_one_stage(schedule: str) -> None:
    with pytest.raises(UsageError, match="always wait at the start"):
        fill_pipeline(schedule=schedule, stages=4, max_bubble=0, virtual_stages=chunks(schedule))
    assert fill_pipeline(schedule=schedule, stages=1, max_bubble=0, virtual_stages=chunks(schedule)).stages == 1


@pytest.mark.parametrize("bad", [-1, 1.5, float("nan"), "x"])
def test_a_share_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(UsageError):
        fill_pipeline(schedule="1f1b", stages=4, max_bubble=bad)
