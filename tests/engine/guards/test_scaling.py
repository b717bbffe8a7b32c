"""A loss scale that moves inside a window is reported; one that moves between windows is silent."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from guards.injecting import Injection, check_misuse, check_silence, jobs_of, trials
from launch import Answer

SAYS = "the loss scale went from {} to 64 after micro-batch {} of 2 of step 1: "

MISUSES = (
    Injection(
        function="move_the_loss_scale_between",
        dtype="fp16",
        error="LossScaleMovedError",
        says=SAYS.format(256, 1),
        let_pass=(0, 2),
    ),
    Injection(
        function="move_the_loss_scale_at_the_boundary",
        dtype="fp16",
        error="LossScaleMovedError",
        says=SAYS.format(256, 2),
        let_pass=(3,),
    ),
    Injection(
        function="move_the_loss_scale_between",
        stages=(1, 2, 3),
        error="LossScaleMovedError",
        says=SAYS.format(1, 1),
        let_pass=(1,),
    ),
)
TWINS = (Injection(function="move_the_loss_scale_between_windows", dtype="fp16"),)
JOBS = jobs_of(*MISUSES, *TWINS)


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(MISUSES, "raise", "warn", "count"))
def test_a_loss_scale_that_moves_inside_a_window_is_reported(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_misuse(injection, stage, mode, answers)


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(TWINS, "raise"))
def test_a_loss_scale_that_moves_between_windows_is_silent(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_silence(injection, stage, mode, answers)
