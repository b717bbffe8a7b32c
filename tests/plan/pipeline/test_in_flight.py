"""How many micro-batches a stage holds at once: the formulas, counted in the orders."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_accum.errors import UsageError
from ds_accum.plan.pipeline import (
    PipelineShape,
    activation_bytes,
    instruction_order,
    micro_batches_in_flight,
    simulate_pipeline,
)
from ds_accum.plan.pipeline.in_flight import passes_in_flight, peak_in_flight
from tests.plan.pipeline.pipelines import shapes


@settings(deadline=None)
@given(shapes(most_stages=9))
def test_the_formula_is_what_is_counted_on_every_stage(shape: PipelineShape) -> None:
    for stage in range(shape.stages):
        counted = peak_in_flight(instruction_order(shape, stage))
        assert passes_in_flight(shape, stage) == counted
        assert micro_batches_in_flight(shape, stage) == Fraction(counted, shape.virtual_stages)


@settings(deadline=None)
@given(shapes(most_stages=4))
def test_what_is_held_at_once_is_what_the_timeline_shows(shape: PipelineShape) -> None:
    for number, stage in enumerate(simulate_pipeline(shape).stages):
        held = peak = 0
        for instruction in stage.instructions:
            held += {"forward": 1, "backward": -1, "backward weight": -1}.get(instruction.part.value, 0)
            peak = max(peak, held)
        assert (peak, held) == (stage.peak_in_flight, 0)
        assert peak == passes_in_flight(shape, number)


def test_1f1b_holds_as_many_as_there_are_stages_from_here_on_whatever_the_window() -> None:
    shape = PipelineShape(schedule="1f1b", stages=4, micro_batches=10**9)
    assert [micro_batches_in_flight(shape, stage) for stage in range(4)] == [4, 3, 2, 1]


def test_gpipe_holds_the_whole_window() -> None:
    shape = PipelineShape(schedule="gpipe", stages=4, micro_batches=10**9)
    assert {micro_batches_in_flight(shape, stage) for stage in range(4)} == {10**9}


@settings(deadline=None)
@given(st.integers(2, 12), st.integers(2, 6), st.integers(2, 9))
def test_interleaved_holds_more_by_p_minus_1_over_p_v_on_the_first_stage(p: int, v: int, groups: int) -> None:
    shape = PipelineShape(schedule="interleaved", stages=p, micro_batches=groups * p, virtual_stages=v)
    assert micro_batches_in_flight(shape, 0) == p * (1 + Fraction(p - 1, p * v))


@pytest.mark.parametrize(("in_flight", "expected"), [(Fraction(4), 400), (Fraction(11, 2), 550), (Fraction(1, 3), 34)])
def test_bytes_are_whole_and_never_too_few(in_flight: Fraction, expected: int) -> None:
    assert activation_bytes(in_flight, 100) == expected


def test_a_stage_that_does_not_exist_is_refused() -> None:
    shape = PipelineShape(schedule="1f1b", stages=4, micro_batches=8)
    for stage in (-1, 4):
        with pytest.raises(UsageError, match="no stage"):
            micro_batches_in_flight(shape, stage)
