"""Counts that are told late, sums over nothing and means of means: right, or refused on every rank alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from launch import Answer, Job, launch

STAGES = (0, 2)
NAN = "nan"  # JSON has none
# What each rank says of its two micro-batches.
_WRONG = {
    "negative": [[2, -1], [2, 2]],
    "negative on rank 1": [[2, 2], [2, -1]],
    "NaN": [[NAN, 2], [2, 2]],
    "NaN on rank 1": [[2, 2], [2, NAN]],
}
_ALL, _NONE = [[True, True], [True, True]], [[False, False], [False, False]]
_MEANS: dict[str, dict[str, Any]] = {
    "means, counted": {"model": "mean", "from labels": True, "known": _NONE},
    "means, given": {"model": "mean", "from labels": False, "known": _ALL},
    "means, unknown": {"model": "mean", "from labels": False, "known": _NONE},
    "means, one of each rank unknown": {"model": "mean", "from labels": False, "known": [[True, False]] * 2},
    "means, unknown on rank 1": {"model": "mean", "from labels": False, "known": [[True, True], [False, False]]},
    "sums": {"model": "sum", "from labels": True, "known": _NONE},
    "divided": {"model": "divided", "from labels": True, "known": _NONE},
}
# The token mean and the mean of means of the losses, which are 4 x 0.25 x value.
_TOKEN_MEAN, _MEAN_OF_MEANS = 3.0, 4.0
_LOSSES = {
    "means, unknown": _MEAN_OF_MEANS,
    "means, one of each rank unknown": _MEAN_OF_MEANS,
    "means, unknown on rank 1": None,
}
_UNKNOWN = {
    "sums": {"model": "sum", "from labels": False, "known": _NONE},
    "divided": {"model": "divided", "from labels": False, "known": _NONE},
}

Answers = Mapping[str, Answer]


@pytest.fixture(scope="module")
def answers() -> Answers:
    jobs = []

    def add(name: str, function: str, stage: int, **arguments: Any) -> None:
        arguments = {"settings": {"stage": stage}, **arguments}
        jobs.append(Job(name=f"{name}, ZeRO-{stage}", function=f"counts:{function}", arguments=arguments))

    for stage in STAGES:
        for name, counts in _WRONG.items():
            add(name, "counts_on_a_device", stage, counts=counts)
        add("right", "counts_on_a_device", stage, counts=[[2, 2], [0, 2]])
        for name, ignored in (("a number", 7.0), ("none", "inf")):
            add(f"sum over nothing, {name}", "sum_over_nothing", stage, ignored=ignored)
        for name, arguments in _MEANS.items():
            add(f"mean of means, {name}", "mean_of_means", stage, **arguments)
        for name, arguments in _UNKNOWN.items():
            add(f"unknown, {name}", "mean_of_means", stage, **arguments)
    return launch(jobs)


@pytest.mark.parametrize("name", _WRONG)
@pytest.mark.parametrize("stage", STAGES)
def test_a_wrong_count_on_a_device_stops_the_step_on_every_rank(stage: int, name: str, answers: Answers) -> None:
    for found in answers[f"{name}, ZeRO-{stage}"].each():
        assert found["raised"].startswith("CountError: the token counts of step 1 add up to ")
        assert found["moved"] == 0.0 and found["global_steps"] == 0


@pytest.mark.parametrize("stage", STAGES)
def test_a_right_count_on_a_device_is_taken(stage: int, answers: Answers) -> None:
    for found in answers[f"right, ZeRO-{stage}"].each():
        assert found["raised"] == "nothing" and found["moved"] == pytest.approx(4.0)


@pytest.mark.parametrize("stage", STAGES)
def test_a_sum_over_nothing_that_is_no_number_is_never_harmless(stage: int, answers: Answers) -> None:
    for found in answers[f"sum over nothing, none, ZeRO-{stage}"].each():
        assert found["because"] == "non-finite loss"
        assert found["moved"] == 0.0 and found["skipped_steps"] == 1


@pytest.mark.parametrize("stage", STAGES)
def test_a_sum_over_nothing_that_is_a_number_adds_nothing(stage: int, answers: Answers) -> None:
    for found in answers[f"sum over nothing, a number, ZeRO-{stage}"].each():
        assert found["because"] is None
        assert found["moved"] == pytest.approx((1 + 3 + 5 + 1 + 3) / 5)


@pytest.mark.parametrize("name", _MEANS)
@pytest.mark.parametrize("stage", STAGES)
def test_a_mean_of_means_is_one_whatever_the_loss_is_and_whoever_counts(
    stage: int, name: str, answers: Answers
) -> None:
    for found in answers[f"mean of means, {name}, ZeRO-{stage}"].each():
        assert found["moved"] == pytest.approx(4.0)


@pytest.mark.parametrize("name", _MEANS)
@pytest.mark.parametrize("stage", STAGES)
def test_its_report_has_the_token_mean_where_all_counts_are_known_and_else_no_sum_of_unlike_things(
    stage: int, name: str, answers: Answers
) -> None:
    for found in answers[f"mean of means, {name}, ZeRO-{stage}"].each():
        expected = _LOSSES.get(name, _TOKEN_MEAN)
        assert found["loss"] == (None if expected is None else pytest.approx(expected))
        assert found["tokens"] == (None if name in _LOSSES else 8)


@pytest.mark.parametrize("name", _UNKNOWN)
@pytest.mark.parametrize("stage", STAGES)
def test_what_is_no_mean_of_its_micro_batch_needs_a_count(stage: int, name: str, answers: Answers) -> None:
    for found in answers[f"unknown, {name}, ZeRO-{stage}"].each():
        assert found["raised"][0].startswith("CountError: the loss has no token count: ")
