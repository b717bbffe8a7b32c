"""Ranks with different numbers of micro-batches are told so, all of them alike, where they meet at all."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from guards.injecting import Injection, check_misuse, check_silence, jobs_of, trials
from launch import Answer

SAYS = "ranks have different numbers of micro-batches in step 1: 1 on rank 0, 2 on rank 1"
BOUNDARY = {"reduction": "boundary"}

# ZeRO-2 and 3 reduce in every backward, unless they are told not to: there the rank with more hangs (test_hanging).
MISUSES = (
    Injection(
        function="accumulate_more_on_rank_1",
        stages=(0, 1),
        windows=(4, 4),
        error="UnevenMicroBatchesError",
        says=SAYS,
        let_pass=(0, 1),
    ),
    Injection(
        function="accumulate_more_on_rank_1",
        stages=(2,),
        windows=(4, 4),
        error="UnevenMicroBatchesError",
        says=SAYS,
        let_pass=(2,),
        block=BOUNDARY,
    ),
)
CONSTANTS = Injection(function="weigh_by_another_constant_on_rank_1", error="AccumulationError")
# Where so many ranks are reduced that none is known by itself: two are enough for it here.
OF_MANY = Injection(
    function="accumulate_more_on_rank_1_of_many",
    stages=(0, 1),
    windows=(4, 4),
    error="UnevenMicroBatchesError",
    says="ranks have different numbers of micro-batches in step 1: from 1 to 2: ",
    let_pass=(1,),
)
CONSTANTS_OF_MANY = Injection(function="weigh_by_another_constant_on_rank_1_of_many", error="AccumulationError")
TWINS = (
    Injection(function="accumulate_as_much_everywhere"),
    Injection(function="accumulate_as_much_everywhere", stages=(2, 3), block=BOUNDARY),
    Injection(function="accumulate_as_much_on_many_ranks"),
)
JOBS = jobs_of(*MISUSES, OF_MANY, CONSTANTS, CONSTANTS_OF_MANY, *TWINS)


@pytest.mark.parametrize(("injection", "stage", "mode"), trials((*MISUSES, OF_MANY), "raise", "warn", "count"))
def test_ranks_with_different_numbers_of_micro_batches_are_told_once_and_alike(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_misuse(injection, stage, mode, answers)
    first, second = injection.found(answers, stage, mode)
    assert (first["text"], first["misuses"]) == (second["text"], second["misuses"])


@pytest.mark.parametrize(("injection", "stage", "mode"), trials((CONSTANTS, CONSTANTS_OF_MANY), "raise"))
def test_ranks_that_weigh_by_different_constants_stop_whatever_the_mode(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    for found in injection.found(answers, stage, mode):
        assert found["error"] == "AccumulationError"
        numbers = re.search("ranks have weighted the window by different constants: from (.*) to (.*);", found["text"])
        assert numbers is not None and 2 * float(numbers[1]) == float(numbers[2])


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(TWINS, "raise"))
def test_ranks_with_as_many_micro_batches_are_silent_in_an_incomplete_window_too(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_silence(injection, stage, mode, answers)
    assert all(
        [step["micro_batches"] for step in found["steps"]] == [1, 2] for found in injection.found(answers, stage, mode)
    )
