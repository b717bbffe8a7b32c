"""A checkpoint saved inside a window, or loaded into one, is reported with what would be lost."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from guards.injecting import Injection, check_misuse, check_silence, jobs_of, trials
from launch import Answer

SAYS = "^{} was called after micro-batch 1 of 2 of step 1: the gradients of 1 micro-batches would be lost"

MISUSES = (
    Injection(
        function="save_between",
        error="CheckpointInsideWindowError",
        says=SAYS.format("save_checkpoint"),
        let_pass=(0, 3),
    ),
    Injection(
        function="load_between",
        error="CheckpointInsideWindowError",
        says=SAYS.format("load_checkpoint"),
        let_pass=(1, 2),
    ),
)
TWINS = (Injection(function="save_and_load_between_windows"),)
JOBS = jobs_of(*MISUSES, *TWINS)


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(MISUSES, "raise", "warn", "count"))
def test_a_checkpoint_inside_a_window_is_reported_in_the_next_step_at_the_latest(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_misuse(injection, stage, mode, answers)


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(TWINS, "raise"))
def test_a_checkpoint_between_windows_is_silent(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_silence(injection, stage, mode, answers)
