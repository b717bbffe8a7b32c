"""The formulas of the bubble, proved by simulation, and what they say of the folklore."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_accum.errors import UsageError
from ds_accum.plan.pipeline import (
    PipelineShape,
    bubble_overhead,
    bubble_share,
    simulate_pipeline,
    smallest_micro_batches,
    stage_times,
)
from ds_accum.plan.pipeline.bubble import waiting_time
from tests.plan.pipeline.pipelines import equal_times, shapes


@pytest.mark.parametrize("stages", range(1, 9))
def test_the_simulated_bubble_of_equal_stages_is_the_formula(stages: int) -> None:
    for micro_batches in range(1, 33):
        for schedule in ("gpipe", "1f1b"):
            timeline = simulate_pipeline(PipelineShape(schedule=schedule, stages=stages, micro_batches=micro_batches))
            assert timeline.bubble_share == Fraction(stages - 1, micro_batches + stages - 1)
            assert timeline.bubble_overhead == Fraction(stages - 1, micro_batches)


@pytest.mark.parametrize("stages", range(1, 9))
@pytest.mark.parametrize("virtual_stages", [1, 2, 3, 4])
def test_the_simulated_bubble_of_interleaved_stages_is_the_formula(virtual_stages: int, stages: int) -> None:
    for micro_batches in range(stages, 33, stages):
        shape = PipelineShape(
            schedule="interleaved", stages=stages, micro_batches=micro_batches, virtual_stages=virtual_stages
        )
        share = simulate_pipeline(shape).bubble_share
        assert share == Fraction(stages - 1, virtual_stages * micro_batches + stages - 1)
        assert share == bubble_share(stages, micro_batches, virtual_stages)


@settings(deadline=None)
@given(shapes(), st.data())
def test_where_there_is_a_formula_every_stage_waits_as_long_as_it_says(
    shape: PipelineShape, data: st.DataObject
) -> None:
    times = data.draw(equal_times(shape.stages))
    waiting = waiting_time(shape, times)
    if waiting is None:
        assert shape.schedule.startswith("zero-bubble") or shape.schedule == "dualpipev"
    else:
        step_time = simulate_pipeline(shape, times).step_time
        assert step_time == shape.micro_batches * times.per_micro_batch[0] + waiting


@settings(deadline=None)
@given(shapes())
def test_with_equal_parts_each_schedule_has_a_formula_once_the_pipeline_is_full(shape: PipelineShape) -> None:
    waiting = waiting_time(shape, stage_times(shape.stages))
    if waiting is None:
        assert shape.micro_batches < 2 * shape.stages - 1
        shape = replace(shape, micro_batches=2 * shape.stages)
        waiting = waiting_time(shape, stage_times(shape.stages))
    assert waiting is not None
    assert simulate_pipeline(shape).step_time == 3 * shape.micro_batches + waiting


def test_no_formula_answers_for_unequal_stages_or_transfers() -> None:
    shape = PipelineShape(schedule="1f1b", stages=4, micro_batches=8)
    assert waiting_time(shape, stage_times(4)) == 9
    assert waiting_time(shape, stage_times(4, slow={2: 1.3})) is None
    assert waiting_time(shape, stage_times(4, transfer=0.1)) is None


def test_two_to_four_times_the_stages_still_leaves_27_to_16_percent() -> None:
    assert bubble_share(4, 8) == Fraction(3, 11)
    assert bubble_share(4, 16) == Fraction(3, 19)
    assert (f"{float(bubble_share(4, 8)):.0%}", f"{float(bubble_share(4, 16)):.0%}") == ("27%", "16%")


def test_seventeen_micro_batches_are_the_fewest_below_15_percent_on_four_stages() -> None:
    assert smallest_micro_batches(4, 0.15) == 17
    assert bubble_share(4, 17) == Fraction(15, 100)
    assert bubble_share(4, 16) > Fraction(15, 100)


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 8), st.integers(1, 999))
def test_one_micro_batch_fewer_is_not_enough(stages: int, virtual_stages: int, thousandths: int) -> None:
    most = Fraction(thousandths, 1000)
    fewest = smallest_micro_batches(stages, most, virtual_stages)
    assert bubble_share(stages, fewest, virtual_stages) <= most
    step = stages if virtual_stages > 1 else 1
    assert fewest % step == 0
    if fewest > step:
        assert bubble_share(stages, fewest - step, virtual_stages) > most


@settings(deadline=None)
@given(st.integers(1, 10**12), st.integers(1, 10**12), st.integers(1, 1000))
def test_share_and_overhead_are_two_ways_to_say_one_thing(stages: int, micro_batches: int, chunks: int) -> None:
    share, overhead = bubble_share(stages, micro_batches, chunks), bubble_overhead(stages, micro_batches, chunks)
    assert overhead == share / (1 - share)


@pytest.mark.parametrize("bad", [0, -1, True, 2.0, "4", None])
def test_sizes_that_are_no_positive_integers_are_refused(bad: Any) -> None:
    for sizes in ((bad, 8, 1), (4, bad, 1), (4, 8, bad)):
        with pytest.raises(UsageError):
            bubble_share(*sizes)
        with pytest.raises(UsageError):
            bubble_overhead(*sizes)
    with pytest.raises(UsageError):
        smallest_micro_batches(bad, 0.15)


@pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf"), 15, 1.01, "0.15", True])
def test_a_share_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(UsageError):
        smallest_micro_batches(4, bad)


def test_a_share_in_percent_is_told_what_it_would_be() -> None:
    with pytest.raises(UsageError, match="between 0 and 1, not 15") as refused:
        smallest_micro_batches(4, 15)
    assert refused.value.remedy == "15 % is 0.15"


def test_no_number_of_micro_batches_removes_the_bubble() -> None:
    with pytest.raises(UsageError, match="above 0 for every m"):
        smallest_micro_batches(4, 0)
    assert smallest_micro_batches(1, 0) == 1
    assert smallest_micro_batches(4, 1) == 1
    assert smallest_micro_batches(4, 1, 2) == 4
