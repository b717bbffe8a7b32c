"""What a summary says of steps whose numbers are known."""

from __future__ import annotations

import math
from io import BytesIO
from typing import Any

import pytest

from ds_accum.engine.report import EventCounts, StepReport
from ds_accum.engine.step_log import as_json_line
from ds_accum.steps.reading import read_logs
from ds_accum.steps.summary import Misuse, Range, Skips, Summary, Tokens, WrongEvents, summarize
from tests.steps.example_run import example_run, report


def summary_of(*reports: StepReport) -> Summary:
    text = "".join(as_json_line(item) + "\n" for item in reports)
    return summarize(read_logs(["-"], BytesIO(text.encode())).steps)


def in_turn(**columns: list[Any]) -> Summary:
    """The summary of one step for each entry of the columns."""
    rows = zip(*columns.values(), strict=True)
    return summary_of(*(report(step, **dict(zip(columns, row, strict=True))) for step, row in enumerate(rows, 1)))


def skipped(step: int, reason: str) -> StepReport:
    return report(step, applied=False, skipped_because=reason, clip_coefficient=None)


def test_skips_are_counted_by_reason_with_their_first_steps() -> None:
    steps = [skipped(step, "overflow") for step in range(1, 8)] + [report(8), skipped(9, "non-finite loss"), report(10)]
    summary = summary_of(*steps)
    assert (summary.steps, summary.first_step, summary.last_step) == (10, 1, 10)
    assert (summary.applied, summary.skipped) == (2, 8)
    assert summary.skips == (
        Skips(reason="overflow", count=7, first_steps=(1, 2, 3, 4, 5)),
        Skips(reason="non-finite loss", count=1, first_steps=(9,)),
    )


def test_a_skip_without_a_reason_is_a_skip() -> None:
    assert summary_of(report(applied=False)).skips[0].reason == "no reason given"


def test_tokens_are_added_and_compared() -> None:
    assert in_turn(num_tokens=[10, 40, 20, 31]).tokens == Tokens(total=101, min=10, median=25.5, max=40)
    assert in_turn(num_tokens=[None, 7]).tokens == Tokens(total=7, min=7, median=7, max=7)
    assert in_turn(num_tokens=[None, None]).tokens is None


def test_the_loss_goes_from_the_first_to_the_last_finite_one() -> None:
    loss = in_turn(loss=[None, 4.0, 3.0, 2.0, math.nan, math.inf]).loss
    assert loss is not None
    assert (loss.first, loss.first_step, loss.last, loss.last_step) == (4.0, 2, 2.0, 4)


def test_the_recent_mean_weighs_every_token_alike() -> None:
    losses = [9.0] * 18 + [1.0, 4.0]
    loss = in_turn(loss=losses, num_tokens=[5] * 18 + [300, 100]).loss
    assert loss is not None
    assert (loss.recent_steps, loss.recent_mean) == (2, (300 * 1.0 + 100 * 4.0) / 400)
    uncounted = in_turn(loss=losses, num_tokens=[None] * 20).loss
    assert uncounted is not None and uncounted.recent_mean == 2.5


def test_a_log_without_a_finite_loss_has_none() -> None:
    assert in_turn(loss=[None, math.nan]).loss is None


def test_the_gradient_norm_has_its_middle_its_peak_and_its_overflows() -> None:
    norm = in_turn(grad_norm=[1.0, math.inf, 7.0, 2.0, None]).grad_norm
    assert norm is not None
    assert (norm.median, norm.max, norm.max_step, norm.infinite) == (2.0, 7.0, 3, 1)


def test_a_norm_may_be_infinite_in_every_step_or_taken_in_none() -> None:
    nothing = in_turn(grad_norm=[None, None]).grad_norm
    assert nothing is None
    only = in_turn(grad_norm=[math.inf, math.inf]).grad_norm
    assert only is not None and (only.max, only.infinite) == (None, 2)


def test_the_clip_rate_is_a_share_of_the_applied_steps() -> None:
    clipping = in_turn(
        clip_coefficient=[0.5, 1.0, 0.1, 0.3, None, 0.9],
        applied=[True, True, True, True, True, False],
    ).clipping
    assert clipping is not None
    assert (clipping.applied, clipping.clipped, clipping.rate, clipping.median_coefficient) == (4, 3, 0.75, 0.3)


def test_without_clipping_there_is_no_rate_and_without_clipped_steps_no_coefficient() -> None:
    assert in_turn(clip_coefficient=[None, None]).clipping is None
    clipping = in_turn(clip_coefficient=[1.0, 1.0]).clipping
    assert clipping is not None and (clipping.rate, clipping.median_coefficient) == (0.0, None)


@pytest.mark.parametrize(
    ("skews", "matters"),
    [
        ([1.0, 1.0, 1.0], "no"),
        ([1.009, 1.0, 1.0], "no"),
        ([1.05, 1.05, 1.05], "little"),
        ([1.0, 1.0, 3.0], "little"),
        ([1.2, 1.3, 1.4], "yes"),
    ],
)
def test_whether_a_mean_of_means_would_matter_follows_from_the_skew(skews: list[float], matters: str) -> None:
    weighting = in_turn(weighting_skew=skews).weighting
    assert weighting is not None
    assert (weighting.median, weighting.max, weighting.matters) == (sorted(skews)[1], max(skews), matters)
    assert skews[weighting.max_step - 1] == weighting.max


def test_settings_have_their_range_and_their_changes() -> None:
    summary = in_turn(loss_scale=[4.0, 4.0, 2.0, 4.0], learning_rate=[None, 0.1, 0.2, 0.05])
    assert summary.loss_scale == Range(first=4.0, last=4.0, min=2.0, max=4.0, changes=2)
    assert summary.learning_rate == Range(first=0.1, last=0.05, min=0.05, max=0.2, changes=2)
    assert in_turn(learning_rate=[None]).learning_rate is None


def test_tokens_a_second_are_those_of_the_whole_run() -> None:
    time = in_turn(seconds=[1.0, 1.0, 8.0], num_tokens=[100, 100, 300]).time
    assert time is not None
    assert (time.median, time.total, time.tokens_per_second) == (1.0, 10.0, 50.0)
    assert time.p95 == pytest.approx(7.3)
    instant = in_turn(seconds=[0.0]).time
    assert instant is not None and instant.tokens_per_second is None


def test_steps_whose_events_are_not_those_of_a_right_step_are_named_once_a_kind() -> None:
    right = EventCounts(backwards=8, reductions=8, norms=1, updates=1, zeroings=1)
    twice = EventCounts(backwards=8, reductions=1, norms=2, updates=1, zeroings=1)
    none = EventCounts(backwards=8, reductions=1, norms=1, updates=0, zeroings=1)
    assert in_turn(events=[right, twice, twice, none, right]).wrong_events == WrongEvents(
        count=3, examples=((2, "2 norms, not 1 at most"), (4, "0 updates, not 1"))
    )
    assert in_turn(events=[right]).wrong_events == WrongEvents(count=0, examples=())


def test_misuses_that_were_let_pass_are_counted_by_name() -> None:
    clipped, both = {"ClippedByHandError": 2}, {"ClippedByHandError": 1, "GradientEditedError": 1}
    assert in_turn(misuses=[{}, clipped, {}, both]).misuses == (
        Misuse(name="ClippedByHandError", times=3, steps=2, first_steps=(2, 4)),
        Misuse(name="GradientEditedError", times=1, steps=1, first_steps=(4,)),
    )
    assert in_turn(misuses=[{}]).misuses == ()


def test_an_invented_run_has_only_right_steps() -> None:
    assert summary_of(*example_run(200)).wrong_events.count == 0
