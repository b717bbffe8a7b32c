"""What the report of a pipeline says."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_accum.plan.pipeline import PipelineShape, move_layers, stage_times, summarize_pipeline
from ds_accum.plan.pipeline.comparison import compare_schedules
from ds_accum.plan.reports.schedule import Recut, ScheduleReport, percent, schedule_document
from ds_accum.plan.reports.schedule_json import schedule_json
from ds_accum.reporting import json_text, render_html, render_markdown, render_text
from tests.plan.pipeline.pipelines import shapes, times_for


def report(shape: PipelineShape, times: Any = None, **more: Any) -> ScheduleReport:
    return ScheduleReport(summary=summarize_pipeline(shape, times), **{"in_seconds": False, **more})


ONE = PipelineShape(schedule="1f1b", stages=4, micro_batches=8)


def test_the_bubble_is_said_first_as_a_share_and_as_what_it_adds() -> None:
    lead = schedule_document(report(ONE)).lead
    assert lead[0] == "the bubble is 27.3 % of a step (3/11): waiting adds 37.5 % to what the stages compute"
    assert lead[1] == "a step takes 33 forwards of a stage, and would take 24 forwards of a stage without waiting"
    assert lead[2] == "stage 0 holds the most: the activations of 4 micro-batches at once"
    assert len(lead) == 3


def test_a_slow_stage_is_named_with_what_it_costs() -> None:
    lead = schedule_document(report(ONE, stage_times(4, slow={2: 1.3}))).lead
    assert (
        "stage 2 sets the pace, 20.9 % above the mean: with any number of micro-batches the bubble is at least 17.3 %"
        in lead
    )
    assert "with equal stages the bubble would be 27.3 %" in lead


def test_times_in_seconds_are_said_in_seconds() -> None:
    document = schedule_document(report(ONE, stage_times(4, forward=0.01), in_seconds=True))
    assert "a step takes 330 ms, and would take 240 ms without waiting" in document.lead
    table = document.sections[1].table
    assert table is not None
    assert table.rows[0] == ("0", "10 ms", "20 ms", "240 ms", "90 ms", "27.3", "4")


def test_bytes_are_those_of_the_micro_batches_in_flight() -> None:
    document = schedule_document(report(ONE, activation_bytes=(10**9,) * 4))
    assert "stage 0 holds the most activations, 4 GB: micro-batches in flight 4 x 1 GB" in document.lead
    table = document.sections[1].table
    assert table is not None
    assert [row[-1] for row in table.rows] == ["4 GB", "3 GB", "2 GB", "1 GB"]


def test_what_zero_bubble_v_costs_with_gradient_clipping_is_said() -> None:
    shape = PipelineShape(schedule="zero-bubble-v", stages=4, micro_batches=8, virtual_stages=2)
    lead = schedule_document(report(shape)).lead
    assert any(sentence.startswith("it would be 0 % only if no stage waits for the others") for sentence in lead)


def test_a_better_cut_is_a_sentence_and_a_table_and_the_best_is_a_sentence() -> None:
    times = stage_times(4, slow={2: 1.3})
    cut = move_layers(times, (8, 8, 8, 8))
    factors = [load / now for load, now in zip(cut.loads, times.per_micro_batch, strict=True)]
    recut = Recut(layers=(8, 8, 8, 8), cut=cut, summary=summarize_pipeline(ONE, times.scaled(factors)))
    document = schedule_document(report(ONE, times, recut=recut))
    assert any(sentence.startswith("cut into 8, 9, 6 and 9 layers, a step takes 36.3") for sentence in document.lead)
    assert document.sections[-1].title == "Where to cut the layers"
    best = Recut(layers=cut.layers, cut=cut, summary=recut.summary)
    document = schedule_document(report(ONE, times, recut=best))
    assert "the layers are cut where they should be: 8, 9, 6 and 9" in document.lead
    assert document.sections[-1].title == "Stages"


def test_a_schedule_that_can_not_run_is_named_with_why() -> None:
    document = schedule_document(report(ONE, others=compare_schedules(stages=4, micro_batches=7)))
    table = document.sections[-1].table
    assert table is not None
    assert [row[0] for row in table.rows] == ["gpipe", "1f1b", "zero-bubble", "zero-bubble-v"]
    assert "interleaved sends micro-batches" in table.note
    assert "dualpipev needs 2 x stages 4 = 8 micro-batches at least, not 7" in table.note


def test_every_schedule_is_compared_with_the_chunks_asked_for_where_it_takes_them() -> None:
    outcomes = compare_schedules(stages=4, micro_batches=8, virtual_stages=3)
    chunks = {one.schedule: one.summary.shape.virtual_stages for one in outcomes if one.summary is not None}
    assert chunks == {
        "gpipe": 1,
        "1f1b": 1,
        "interleaved": 3,
        "zero-bubble": 3,
        "zero-bubble-v": 2,
        "dualpipev": 2,
    }


@settings(deadline=None, max_examples=40)
@given(shapes(most_stages=5), st.data(), st.integers(40, 120))
def test_every_format_shows_it_and_no_line_is_too_wide(shape: PipelineShape, data: st.DataObject, width: int) -> None:
    found = report(shape, data.draw(times_for(shape.stages)), in_seconds=data.draw(st.booleans()))
    document = schedule_document(found, width=width)
    assert all(len(line) <= width for line in render_text(document, width=width).splitlines())
    assert "<svg" in render_html(document)
    assert "```text" in render_markdown(document)
    values = json.loads(json_text(schedule_json(found)))
    assert values["bubble_share"] == float(found.summary.bubble_share)
    assert [len(stage) for stage in values["timeline"]] == [
        len(stage.instructions) for stage in (found.summary.timeline.stages if found.summary.timeline else ())
    ]
    assert values["per_stage"][0]["micro_batches_in_flight"] == float(found.summary.stages[0].in_flight)


def test_json_without_a_timeline_says_so() -> None:
    values = schedule_json(report(PipelineShape(schedule="1f1b", stages=4, micro_batches=10**9)))
    assert (values["timeline"], values["timeline_left_out"]) == (None, "by formula")
    values = schedule_json(report(PipelineShape(schedule="1f1b", stages=64, micro_batches=1024)))
    assert values["timeline"] is None
    assert "131072 passes are more than 100000" in str(values["timeline_left_out"])
    values = schedule_json(report(PipelineShape(schedule="1f1b", stages=4, micro_batches=10**9)))
    assert values["bubble_share"] == Fraction(3, 10**9 + 3)


def test_ten_thousand_stages_are_a_table_that_opens() -> None:
    document = schedule_document(report(PipelineShape(schedule="1f1b", stages=10_000, micro_batches=10**9)))
    table = document.sections[0].table
    assert table is not None
    assert len(table.rows) == 257
    assert table.rows[128][0] == "9744 more"


@pytest.mark.parametrize(
    ("share", "said"), [(Fraction(3, 11), "27.3 %"), (Fraction(3, 20), "15 %"), (Fraction(0), "0 %")]
)
def test_a_share_is_said_in_percent(share: Fraction, said: str) -> None:
    assert percent(share) == said
