"""The timeline in characters."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_accum.plan.pipeline import PipelineShape, simulate_pipeline, stage_times
from ds_accum.plan.reports.timeline_text import DRAWN_WITH, MOST_ROWS, timeline_text
from tests.plan.pipeline.pipelines import shapes, times_for


def drawn(schedule: str, stages: int, micro_batches: int, virtual_stages: int = 1, **options: int | bool) -> list[str]:
    shape = PipelineShape(schedule=schedule, stages=stages, micro_batches=micro_batches, virtual_stages=virtual_stages)
    return list(timeline_text(simulate_pipeline(shape), **options))  # type: ignore[arg-type]


def test_1f1b_of_four_stages_is_drawn_pass_by_pass() -> None:
    assert drawn("1f1b", 4, 4) == [
        "stage 0 0░░1░░2░░3░░··················0▓▓▓▓▓···1▓▓▓▓▓···2▓▓▓▓▓···3▓▓▓▓▓",
        "stage 1 ···0░░1░░2░░············0▓▓▓▓▓3░░1▓▓▓▓▓···2▓▓▓▓▓···3▓▓▓▓▓······",
        "stage 2 ······0░░1░░······0▓▓▓▓▓2░░1▓▓▓▓▓3░░2▓▓▓▓▓···3▓▓▓▓▓············",
        "stage 3 ·········0░░0▓▓▓▓▓1░░1▓▓▓▓▓2░░2▓▓▓▓▓3░░3▓▓▓▓▓··················",
        "░ forward, ▓ backward, · waiting; numbers are micro-batches",
    ]


def test_without_unicode_it_is_drawn_in_ascii() -> None:
    assert drawn("zero-bubble", 2, 3, blocks=False) == [
        "stage 0 0-----1-----......0=====0+++++2-----1=====1+++++2=====2+++++",
        "stage 1 ......0-----0=====1-----1=====0+++++2-----2=====1+++++2+++++",
        "- forward, = backward, + of the weights, . waiting; numbers are micro-batches",
    ]


@settings(deadline=None)
@given(shapes(most_stages=6), st.data(), st.integers(40, 120), st.booleans())
def test_no_line_is_wider_than_the_terminal_and_every_stage_has_one(
    shape: PipelineShape, data: st.DataObject, width: int, blocks: bool
) -> None:
    timeline = simulate_pipeline(shape, data.draw(times_for(shape.stages)))
    lines = timeline_text(timeline, width=width, blocks=blocks)
    assert all(len(line) <= width for line in lines)
    assert [line.split()[1] for line in lines[: shape.stages]] == [str(stage) for stage in range(shape.stages)]
    assert len({len(line) for line in lines[: shape.stages]}) == 1
    assert blocks or all(line.isascii() for line in lines)


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 10))
def test_the_columns_that_wait_are_the_bubble(stages: int, micro_batches: int) -> None:
    timeline = simulate_pipeline(PipelineShape(schedule="1f1b", stages=stages, micro_batches=micro_batches))
    rows = [line[8:] for line in timeline_text(timeline, width=400)[:stages]]
    waiting = sum(row.count("·") for row in rows)
    assert Fraction(waiting, sum(map(len, rows))) == timeline.bubble_share


def test_a_long_timeline_is_drawn_in_shades() -> None:
    lines = drawn("1f1b", 4, 60)
    assert "blank: waiting" in lines[-1]
    assert lines[1].count("█") > 20
    assert lines[3].endswith("  ")
    assert lines[3][8:].startswith(" ")
    assert "#" in drawn("1f1b", 4, 200, blocks=False)[0]


def test_of_many_stages_some_are_drawn_from_the_first_to_the_last() -> None:
    lines = drawn("1f1b", 100, 4)
    assert lines[0].startswith(" stage 0")
    assert lines[MOST_ROWS - 1].startswith("stage 99")
    assert "(60 stages between those are left out)" in " ".join(lines[MOST_ROWS:])


@pytest.mark.parametrize("sign", DRAWN_WITH)
def test_what_it_is_drawn_with_is_used(sign: str) -> None:
    everything = "".join(drawn("zero-bubble-v", 4, 8, 2) + drawn("1f1b", 4, 200))
    assert sign in everything


def test_a_slow_stage_fills_its_row() -> None:
    shape = PipelineShape(schedule="1f1b", stages=4, micro_batches=8)
    lines = timeline_text(simulate_pipeline(shape, stage_times(4, slow={2: 1.3})))
    waiting = [line.count("·") for line in lines[:4]]
    assert min(waiting) == waiting[2]
