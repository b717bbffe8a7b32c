"""`ds-accum schedule` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

PIPELINE = ("schedule", "--stages", "4", "--micro-batches", "8")


def test_it_draws_and_says_the_bubble(ds_accum: Any) -> None:
    finished = ds_accum(*PIPELINE)
    assert finished.code == 0
    assert "the bubble is 27.3 % of a step (3/11)" in finished.output
    assert "stage 3" in finished.output
    assert all(len(line) <= 80 for line in finished.output.splitlines())


def test_17_micro_batches_keep_four_stages_at_15_percent(ds_accum: Any) -> None:
    for share in ("0.15", "15%"):
        finished = ds_accum("schedule", "--stages", "4", "--max-bubble", share)
        assert "1F1B: 4 stages, 17 micro-batches a step" in finished.output
        assert "17 micro-batches are the fewest that keep the bubble at 15 % or below" in finished.output


def test_with_both_it_says_the_fewest_and_draws_what_was_asked_for(ds_accum: Any) -> None:
    finished = ds_accum(*PIPELINE, "--max-bubble", "0.15")
    assert "8 micro-batches a step" in finished.output
    assert "17 micro-batches are the fewest" in finished.output


def test_a_slow_stage_and_another_cut(ds_accum: Any) -> None:
    finished = ds_accum(*PIPELINE, "--slow", "2:1.3", "--layers", "32", "--activation-bytes", "1.5GB")
    assert "the bubble is 34.4 % of a step" in finished.output
    assert "cut into 8, 9, 6 and 9 layers" in finished.output
    assert "6 GB" in finished.output


def test_stage_times_are_seconds_forward_alone_or_with_backward(ds_accum: Any) -> None:
    for times in ("0.01", "0.01/0.02", "0.01,0.01,0.01,0.01", "0.01/0.02,0.01/0.02,0.01/0.02,0.01/0.02"):
        assert "a step takes 330 ms" in ds_accum(*PIPELINE, "--stage-times", times).output
    assert (
        "a step takes 336 ms"
        in ds_accum(*PIPELINE, "--schedule", "gpipe", "--stage-times", "0.01", "--transfer-time", "0.001").output
    )


def test_layers_that_do_not_divide_make_the_first_stages_slower(ds_accum: Any) -> None:
    values = json.loads(ds_accum(*PIPELINE, "--layers", "34", "--format", "json").output)
    forwards = [stage["forward"] for stage in values["per_stage"]]
    assert [round(forward * 34 / 4) for forward in forwards] == [9, 9, 8, 8]
    assert values["recut"]["layers"] == [8, 8, 9, 9]  # the first stages hold the most micro-batches


def test_the_logits_stay_on_the_last_stage(ds_accum: Any) -> None:
    finished = ds_accum(*PIPELINE, "--stage-times", "1,1,1,1.5", "--layers", "8,8,8,8", "--fixed", "3:0.5")
    assert "cut into 9, 9, 9 and 5 layers" in finished.output


def test_all_schedules_are_one_table(ds_accum: Any) -> None:
    finished = ds_accum(*PIPELINE, "--schedule", "all")
    for name in ("gpipe", "1f1b", "interleaved", "zero-bubble", "zero-bubble-v", "dualpipev"):
        assert f"\n{name} " in finished.output


def test_json_holds_the_whole_timeline(ds_accum: Any) -> None:
    values = json.loads(ds_accum(*PIPELINE, "--schedule", "ZBVZeroBubble", "--format", "json").output)
    assert values["schedule"] == "zero-bubble-v"
    assert values["unit"] == "forwards of a stage"
    assert values["timeline"][0][0] == {"part": "forward", "micro_batch": 0, "chunk": 0, "start": 0.0, "end": 0.5}
    assert max(one["end"] for stage in values["timeline"] for one in stage) == values["step_time"] == 25.5


def test_a_page_and_a_drawing_are_written(ds_accum: Any, tmp_path: Path) -> None:
    page, drawing = tmp_path / "schedule.html", tmp_path / "schedule.svg"
    finished = ds_accum(*PIPELINE, "--format", "html", "--output-file", page, "--svg", drawing)
    assert finished.code == 0
    assert "<svg" in page.read_text("utf-8")
    assert drawing.read_text("utf-8").startswith("<svg xmlns=")


def test_a_billion_micro_batches_are_answered_without_a_drawing(ds_accum: Any, tmp_path: Path) -> None:
    huge = ("schedule", "--stages", "4", "--micro-batches", str(10**9))
    finished = ds_accum(*huge)
    assert finished.code == 0
    assert "too many to draw: these numbers are by formula" in finished.output
    finished = ds_accum(*huge, "--svg", tmp_path / "no.svg")
    assert (finished.code, finished.output) == (2, "")
    assert "can't draw 1000000000 micro-batches" in finished.errors
    assert not (tmp_path / "no.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence", "remedy"),
    [
        (["--stages", "0", "--micro-batches", "8"], "stages must be at least 1, not 0", "set stages to 1 or more"),
        (["--stages", "4", "--micro-batches", "0"], "micro-batches must be at least 1, not 0", "1 or more"),
        (["--stages", "-1", "--max-bubble", "0.1"], "stages must be at least 1, not -1", "1 or more"),
        (["--stages", "4"], "neither --micro-batches nor --max-bubble", "how many"),
        (["--micro-batches", "4"], "missing option '--stages'", "--help"),
        (["--stages", "4.5", "--micro-batches", "8"], "'4.5' is not a valid integer", "--help"),
        ([*PIPELINE[1:], "--schedule", "1f1bb"], "there is no schedule '1f1bb'", "did you mean 1f1b?"),
        (["--stages", "4", "--micro-batches", "10", "--schedule", "interleaved"], "10 is not a multiple of", "8 or 12"),
        (["--stages", "4", "--micro-batches", "7", "--schedule", "dualpipev"], "at least, not 7", "8 micro-batches"),
        ([*PIPELINE[1:], "--virtual-stages", "2"], "1f1b has 1 chunk of layers a stage, not 2", "interleaved"),
        ([*PIPELINE[1:], "--virtual-stages", "0"], "virtual stages must be at least 1, not 0", "1 or more"),
        ([*PIPELINE[1:], "--stage-times", "1,1,1"], "there are 3 forward times for 4 stages", "one for each"),
        ([*PIPELINE[1:], "--stage-times", "1,nan,1,1"], "'nan' is not a number of at least 0", "0.02"),
        ([*PIPELINE[1:], "--stage-times", "1,-1,1,1"], "'-1' is not a number of at least 0", "0.02"),
        ([*PIPELINE[1:], "--stage-times", "1,0,1,1"], "forward time of stage 1 must be more than 0", "0.02"),
        ([*PIPELINE[1:], "--stage-times", "1,,1,1"], "has an empty place", "single commas"),
        ([*PIPELINE[1:], "--stage-times", "1/2,1,1,1"], "for each a forward/backward", "0.01/0.02"),
        ([*PIPELINE[1:], "--stage-times", "fast"], "'fast' is not a number", "0.02"),
        ([*PIPELINE[1:], "--stage-times", "1e999999999"], "must be between 1e-12 and 1e12", "unit"),
        ([*PIPELINE[1:], "--slow", "2"], "'2' is not STAGE:NUMBER", "--slow 2:1.3"),
        ([*PIPELINE[1:], "--slow", "4:1.3"], "no stage 4 in a pipeline of 4", "0 to 3"),
        ([*PIPELINE[1:], "--slow", "2:1.3", "--slow", "2:1.4"], "names stage 2 twice", "once"),
        ([*PIPELINE[1:], "--slow", "1:1e-999999999999"], "factor of stage 1 is 1", "such as 1.3"),
        ([*PIPELINE[1:], "--max-bubble", "150%"], "--max-bubble: '150%' is more than the whole", "0.15 or 15%"),
        ([*PIPELINE[1:], "--max-bubble", "15"], "--max-bubble: '15' is more than the whole", "15 % is written 15%"),
        ([*PIPELINE[1:], "--max-bubble", "1e-300"], "'1e-300' is a share too small to matter", "0, or a share"),
        ([*PIPELINE[1:], "--slow", "2:0"], "the factor of stage 2 must be more than 0", "0.02"),
        ([*PIPELINE[1:], "--transfer-time", "-1"], "'-1' is not a number of at least 0", "0.02"),
        ([*PIPELINE[1:], "--transfer-time", "inf"], "'inf' is not a number of at least 0", "0.02"),
        ([*PIPELINE[1:], "--weight-share", "1"], "must be below 1", "0.5"),
        ([*PIPELINE[1:], "--max-bubble", "0"], "always wait at the start", "above 0"),
        ([*PIPELINE[1:], "--max-bubble", "x"], "'x' is not a number", "0.02"),
        ([*PIPELINE[1:], "--activation-bytes", "1,2"], "2 sizes for 4 stages", "one for all"),
        ([*PIPELINE[1:], "--activation-bytes", "1parsec"], "'1parsec' is not a number", "0.02"),
        ([*PIPELINE[1:], "--activation-bytes", "1BB"], "has no unit of bytes", "1.5GB"),
        ([*PIPELINE[1:], "--activation-bytes", "1e999999999"], "more than any device holds", "1.5GB"),
        ([*PIPELINE[1:], "--layers", "3"], "3 layers can't fill 4 stages", "3 stages or fewer"),
        ([*PIPELINE[1:], "--layers", "8,8"], "2 numbers for 4 stages", "one for each stage"),
        ([*PIPELINE[1:], "--layers", "8,8,8,x"], "'x' is not an integer of at least 1", "32"),
        ([*PIPELINE[1:], "--layers", "99999"], "99999 layers are more than the 1000", "blocks"),
        ([*PIPELINE[1:], "--schedule", "interleaved", "--layers", "32"], "one chunk a stage", "1f1b"),
        ([*PIPELINE[1:], "--fixed", "3:0.1"], "--fixed says nothing without --layers", "how many layers"),
        ([*PIPELINE[1:], "--layers", "32", "--fixed", "3:2"], "leaves nothing of its forward", "its layers'"),
        (
            ["--stages", "4", "--micro-batches", "1000000000", "--slow", "2:1.3"],
            "8000000000 passes, more than the 1000000 that are simulated",
            "simulate 125000 micro-batches or fewer",
        ),
        (["--stages", "9999999", "--micro-batches", "8"], "9999999 stages are more than the 10000", "bubble_share"),
        (["--stages", "1" + "0" * 40, "--micro-batches", "8"], "about 10^40 stages", "bubble_share"),
    ],
)
def test_a_wrong_call_is_one_sentence_and_a_remedy(
    ds_accum: Any, arguments: list[str], sentence: str, remedy: str
) -> None:
    finished = ds_accum("schedule", *arguments)
    assert (finished.code, finished.output) == (2, "")
    error, help_ = finished.errors.strip().split("\n")
    assert error.startswith("error: ")
    assert sentence in error
    assert help_.startswith("help: ")
    assert remedy in help_
    assert "Traceback" not in finished.errors
