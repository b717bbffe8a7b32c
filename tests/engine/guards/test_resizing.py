"""A batch or a world that changes inside a window is reported; between windows a batch may change."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from guards.injecting import Injection, check_misuse, check_silence, jobs_of, trials
from launch import Answer

MISUSES = (
    Injection(
        function="set_the_global_batch_between",
        error="WindowResizedError",
        says="^set_train_batch_size was called after micro-batch 1 of 2 of step 1: ",
        let_pass=(1,),
    ),
    Injection(
        function="set_the_micro_batch_between",
        error="WindowResizedError",
        says="^set_train_micro_batch_size was called after micro-batch 1 of 2 of step 1: ",
        let_pass=(2,),
    ),
    Injection(
        function="set_the_accumulation_between",
        error="WindowResizedError",
        says="^gradient_accumulation_steps went from 2 to 3 after micro-batch 1 of 3 of step 1: ",
        let_pass=(0, 3),
    ),
)
WORLD = Injection(
    function="change_the_world_between",
    error="WindowResizedError",
    says="^the world size went from 2 to 1 after micro-batch 1 of 2 of step 1: ",
)
TWINS = (Injection(function="resize_between_windows"),)
JOBS = jobs_of(*MISUSES, *TWINS, WORLD)


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(MISUSES, "raise", "warn", "count"))
def test_a_batch_that_changes_inside_a_window_is_reported_once(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_misuse(injection, stage, mode, answers)


@pytest.mark.parametrize("stage", WORLD.stages)
def test_a_world_that_changes_inside_a_window_is_reported_before_anything_is_sent_into_the_old_one(
    stage: int, answers: Mapping[str, Answer]
) -> None:
    remaining, left = WORLD.found(answers, stage, "raise")
    assert remaining["error"] == WORLD.error and "the world size went from 2 to 1" in remaining["text"]
    assert left["error"] is None


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(TWINS, "raise"))
def test_a_batch_that_changes_between_windows_is_silent(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_silence(injection, stage, mode, answers)
