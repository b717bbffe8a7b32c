"""What a schedule can run, and what it says of what it can't."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from ds_accum.errors import UsageError
from ds_accum.plan.pipeline import SCHEDULES, Part, PipelineShape, instruction_order, schedule_named
from tests.plan.pipeline.pipelines import shapes


@settings(deadline=None)
@given(shapes())
def test_every_chunk_of_the_model_lies_on_one_stage(shape: PipelineShape) -> None:
    numbers = [shape.number_of(stage, chunk) for stage in range(shape.stages) for chunk in range(shape.virtual_stages)]
    assert sorted(numbers) == list(range(shape.num_chunks))


@settings(deadline=None)
@given(shapes())
def test_the_instructions_are_counted_without_making_them(shape: PipelineShape) -> None:
    orders = [instruction_order(shape, stage) for stage in range(shape.stages)]
    whole = sum(one.part is Part.BACKWARD for order in orders for one in order)
    in_parts = whole if shape.kind.splits_backward else 0
    assert sum(map(len, orders)) + in_parts == shape.num_instructions


def test_a_v_comes_back_to_where_it_began() -> None:
    shape = PipelineShape(schedule="zero-bubble-v", stages=4, micro_batches=8, virtual_stages=2)
    assert [shape.number_of(stage, 1) for stage in range(4)] == [7, 6, 5, 4]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("1F1B", "1f1b"),
        (" gpipe ", "gpipe"),
        ("Interleaved1F1B", "interleaved"),
        ("ZBVZeroBubble", "zero-bubble-v"),
        ("interleavedzerobubble", "zero-bubble"),
        ("DualPipeV", "dualpipev"),
    ],
)
def test_a_schedule_has_our_name_and_torch_s(name: str, meant: str) -> None:
    assert schedule_named(name).name == meant
    known = SCHEDULES[meant]
    shape = PipelineShape(schedule=name, stages=2, micro_batches=4, virtual_stages=known.default_virtual_stages)
    assert shape.schedule == meant


@pytest.mark.parametrize(
    ("name", "meant"),
    [("1f1bb", "1f1b"), ("interleave", "interleaved"), ("zerobubble", "zero-bubble"), ("dualpipe", "dualpipev")],
)
def test_a_misspelt_schedule_is_told_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"there is no schedule '{name}'") as refused:
        schedule_named(name)
    assert refused.value.remedy is not None
    assert refused.value.remedy.startswith(f"did you mean {meant}?")


def test_a_schedule_that_is_like_none_is_told_all() -> None:
    with pytest.raises(UsageError) as refused:
        schedule_named("x" * 10_000)
    assert len(str(refused.value)) < 80
    assert refused.value.remedy == "there are gpipe, 1f1b, interleaved, zero-bubble, zero-bubble-v and dualpipev"


@pytest.mark.parametrize(("micro_batches", "nearest"), [(10, "8 or 12"), (3, "4"), (1, "4"), (9, "8 or 12")])
def test_interleaved_needs_a_multiple_of_the_stages_and_says_the_nearest(micro_batches: int, nearest: str) -> None:
    with pytest.raises(UsageError, match=f"{micro_batches} is not a multiple of stages 4") as refused:
        PipelineShape(schedule="interleaved", stages=4, micro_batches=micro_batches, virtual_stages=2)
    assert refused.value.remedy == f"use {nearest} micro-batches"


def test_zero_bubble_needs_one_too_if_a_stage_has_several_chunks() -> None:
    assert PipelineShape(schedule="zero-bubble", stages=4, micro_batches=10).micro_batches == 10
    with pytest.raises(UsageError, match="10 is not a multiple of stages 4"):
        PipelineShape(schedule="zero-bubble", stages=4, micro_batches=10, virtual_stages=2)


def test_dualpipev_needs_twice_the_stages() -> None:
    with pytest.raises(UsageError, match="2 x stages 4 = 8 micro-batches at least, not 7"):
        PipelineShape(schedule="dualpipev", stages=4, micro_batches=7, virtual_stages=2)


@pytest.mark.parametrize(
    ("schedule", "virtual_stages", "sentence"),
    [
        ("1f1b", 2, "1f1b has 1 chunk of layers a stage, not 2"),
        ("gpipe", 3, "gpipe has 1 chunk of layers a stage, not 3"),
        ("zero-bubble-v", 1, "zero-bubble-v has 2 chunks of layers a stage, not 1"),
        ("dualpipev", 4, "dualpipev has 2 chunks of layers a stage, not 4"),
    ],
)
def test_chunks_that_a_schedule_has_not_are_refused(schedule: str, virtual_stages: int, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        PipelineShape(schedule=schedule, stages=4, micro_batches=8, virtual_stages=virtual_stages)


@pytest.mark.parametrize("bad", [0, -3, True, 1.5, "4", None])
def test_sizes_that_are_no_positive_integers_are_refused(bad: Any) -> None:
    for sizes in ({"stages": bad, "micro_batches": 8}, {"stages": 4, "micro_batches": bad}):
        with pytest.raises(UsageError, match="must be"):
            PipelineShape(schedule="1f1b", **sizes)
    with pytest.raises(UsageError, match="virtual stages must be"):
        PipelineShape(schedule="interleaved", stages=4, micro_batches=8, virtual_stages=bad)
