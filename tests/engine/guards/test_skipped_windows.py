"""What can't be applied is skipped by all ranks together, or refused before anything is accumulated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from cases import Dtype
from guards.injecting import Injection, check_silence, jobs_of, trials
from launch import Answer

MODULE = "guards.skipped_windows"
DTYPES: tuple[Dtype, ...] = ("fp32", "bf16", "fp16")
REASONS = {
    "lose_the_loss_on_rank_1": "non-finite loss",
    "take_a_mean_over_nothing": "non-finite loss",
    "count_no_token_anywhere": "no counted token",
}


def _injections(function: str, dtypes: tuple[Dtype, ...] = DTYPES, **more: Any) -> list[Injection]:
    fixed: dict[str, Any] = {"module": MODULE, "windows": (2, 2, 2)}
    return [Injection(function=function, dtype=dtype, **fixed, **more) for dtype in dtypes]


SKIPPED = [injection for function in REASONS for injection in _injections(function)]
FULL_PRECISION = {"data_types": {"grad_accum_dtype": "fp32"}}
SKIPPED += _injections("lose_the_loss_on_rank_1", ("bf16",), stages=(1,), config=FULL_PRECISION)
APPLIED = _injections("leave_one_rank_without_a_token", ("fp32",))
RAISED = [
    *_injections("lose_the_loss_on_rank_1", ("fp32",), stages=(0, 2), block={"on_nonfinite": "raise"}),
    *_injections("count_no_token_anywhere", ("fp32",), stages=(0, 2), block={"on_empty_window": "raise"}),
]
COUNTS = [
    Injection(function=function, module=MODULE, stages=(0, 2), error="CountError", says=says)
    for function, says in (
        ("pass_no_count", "the loss has no token count: .*shift"),
        ("pass_a_negative_count", "num_tokens is -1"),
        ("pass_a_count_that_is_no_number", "num_tokens is nan"),
        ("pass_a_count_above_the_labels", "num_tokens is 17, but the batch has 16 labels, counted or not"),
        ("pass_a_tensor_above_the_labels", "num_tokens is 17, but the batch has 16 labels, counted or not"),
        ("leave_two_forwards_for_one_backward", "2 forwards in training came since the last backward"),
    )
]
COUNTED = [
    Injection(function=function, module=MODULE, stages=(0, 2, 3))
    for function in ("count_two_forwards_together", "count_again_after_a_refusal")
]
JOBS = jobs_of(*SKIPPED, *APPLIED, *RAISED, *COUNTS, *COUNTED)


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(SKIPPED, "raise"))
def test_all_ranks_skip_together_and_no_parameter_moves(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    for found in injection.found(answers, stage, mode):
        assert found["error"] is None, found["text"]
        assert found["value"] == {"untouched": True, "scale kept": True, "skipped": 1, "goes on": True}
        reasons = [step["skipped_because"] for step in found["steps"]]
        assert reasons == [None, REASONS[injection.function], None]
        assert found["warnings"] == []


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(APPLIED, "raise"))
def test_a_rank_without_a_counted_token_takes_part(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_silence(injection, stage, mode, answers)
    for found in injection.found(answers, stage, mode):
        assert found["value"]["untouched"] is False and found["value"]["skipped"] == 0


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(RAISED, "raise"))
def test_a_skipped_window_is_raised_on_every_rank_where_the_config_asks(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    expected = "NonFiniteLossError" if "on_nonfinite" in injection.block else "EmptyWindowError"
    assert [found["error"] for found in injection.found(answers, stage, mode)] == [expected] * 2


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(COUNTS, "raise"))
def test_a_count_that_can_not_be_is_refused(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    import re

    for found in injection.found(answers, stage, mode):
        assert found["error"] == "CountError", found
        assert re.search(injection.says, found["text"]), found["text"]
        assert found["remedy"]


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(COUNTED, "raise"))
def test_counts_that_can_be_are_taken_even_after_one_that_was_refused(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_silence(injection, stage, mode, answers)
