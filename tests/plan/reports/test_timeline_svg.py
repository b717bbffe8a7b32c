"""The timeline as a drawing: well-formed, to scale, and small."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_accum.plan.pipeline import SCHEDULES, PipelineShape, PipelineTimeline, simulate_pipeline, stage_times
from ds_accum.plan.reports.timeline_svg import timeline_svg
from tests.plan.pipeline.pipelines import shapes, times_for

FORWARDS = ("#a3caf7", "#6fa5e8")
SCALE = 960 - 64 - 8


def simulated(schedule: str, stages: int, micro_batches: int) -> PipelineTimeline:
    return simulate_pipeline(
        PipelineShape(
            schedule=schedule,
            stages=stages,
            micro_batches=micro_batches,
            virtual_stages=SCHEDULES[schedule].default_virtual_stages,
        )
    )


@settings(deadline=None, max_examples=40)
@given(shapes(most_stages=5), st.data())
def test_every_pass_is_drawn_where_it_is_in_time(shape: PipelineShape, data: st.DataObject) -> None:
    timeline = simulate_pipeline(shape, data.draw(times_for(shape.stages)))
    root = ElementTree.fromstring(timeline_svg(timeline, unit="seconds"))
    passes = [rect for rect in root.iter("rect") if rect.find("title") is not None]
    starts = [start for stage in timeline.stages for start in stage.starts]
    assert len(passes) == len(starts)
    for rect, start in zip(passes, starts, strict=True):
        assert float(rect.attrib["x"]) == pytest.approx(64 + SCALE * start / timeline.step_ticks, abs=0.01)
        assert float(rect.attrib["x"]) + float(rect.attrib["width"]) <= 952.5


def test_each_pass_says_what_it_is() -> None:
    text = timeline_svg(simulated("interleaved", 2, 4))
    assert "<title>forward, micro-batch 3, chunk 1: 7 to 7.5</title>" in text
    assert "darker: every second chunk" in text


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_thousands_of_passes_stay_a_small_drawing_of_the_same_area(schedule: str) -> None:
    timeline = simulated(schedule, 16, 512)
    text = timeline_svg(timeline)
    ElementTree.fromstring(text)
    assert len(text) < 600_000
    area = sum(
        float(height) * float(width)
        for fill, path in re.findall(r'<path fill="(#\w+)" d="([^"]*)"', text)
        for width, height in re.findall(r"h([\d.]+)v([\d.]+)", path)
    )
    computing = 1 - float(timeline.bubble_share)
    assert area == pytest.approx(computing * 16 * 26 * SCALE, rel=0.01)


def test_a_file_of_its_own_brings_its_colours_and_a_page_s_figure_does_not() -> None:
    timeline = simulated("1f1b", 4, 8)
    own, inline = timeline_svg(timeline, standalone=True), timeline_svg(timeline)
    assert 'xmlns="http://www.w3.org/2000/svg"' in own
    assert "prefers-color-scheme: dark" in own
    assert "<style>" not in inline
    assert "min-width" in inline


def test_two_drawings_on_a_page_share_no_id() -> None:
    ids = [re.findall(r'id="([^"]+)"', timeline_svg(simulated("1f1b", 4, count)))[0] for count in (8, 9)]
    assert len(set(ids)) == 2


def test_the_axis_ends_with_its_unit_and_no_number_runs_into_it() -> None:
    root = ElementTree.fromstring(timeline_svg(simulated("1f1b", 4, 8), unit="forwards"))
    last = float(list(root.iter("text"))[-1].attrib["y"])
    axis = [text for text in root.iter("text") if float(text.attrib["y"]) == last and text.text != "forwards"]
    numbers = [float(text.attrib["x"]) for text in axis]
    assert [text.text for text in axis] == ["0", "5", "10", "15", "20", "25", "30"]
    assert max(numbers) < 952 - 7 * len("forwards")
    assert [text.text for text in root.iter("text")][-1] == "forwards"


def test_many_stages_are_drawn_in_part() -> None:
    text = timeline_svg(
        simulate_pipeline(PipelineShape(schedule="1f1b", stages=100, micro_batches=4), stage_times(100))
    )
    assert text.count(">stage ") == 32
    assert ">stage 99<" in text
