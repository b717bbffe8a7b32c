"""Backwards that no boundary comes after, or that come after it, are reported; where they are right they are silent."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from guards.injecting import Injection, check_misuse, check_silence, jobs_of, trials
from launch import Answer

MISUSES = (
    Injection(
        function="step_inside_no_sync",
        stages=(0, 1),
        error="StepInsideNoSyncError",
        says="inside no_sync after micro-batch 1 of 2 of step 1, where nothing is reduced: ",
    ),
    Injection(
        function="meet_no_boundary_after_no_sync",
        stages=(0, 1),
        error="BoundaryMissedError",
        says="2 backwards were made for 2 accumulation steps of step 1, 1 of them without a reduction",
        let_pass=(0, 1),
    ),
    Injection(
        function="go_backward_twice_for_one_step",
        stages=(0, 1, 2),
        windows=(1, 1),
        error="BackwardAfterBoundaryError",
        says="another backward begins after micro-batch 1 of 1 of step 1, whose gradients are reduced already: ",
        let_pass=(0, 1, 2),
    ),
    Injection(
        function="step_twice_after_a_backward",
        windows=(3, 3),
        error="StepWithoutBackwardError",
        says="engine.step\\(\\) was called twice after micro-batch 1 of 3 of step 1, with no backward between: ",
    ),
    Injection(
        function="step_twice_at_the_boundary",
        windows=(4, 4),
        error="StepWithoutBackwardError",
        says="engine.step\\(\\) was called twice after micro-batch 3 of 4 of step 1, with no backward between: ",
    ),
    Injection(
        function="step_without_any_backward",
        error="StepWithoutBackwardError",
        says="came to the boundary of step 1, but no rank has made a backward that the engine knows of: ",
        let_pass=(0, 1, 2, 3),
    ),
)
TWINS = (
    Injection(function="meet_the_boundary_after_no_sync", stages=(0, 1)),
    # ZeRO-3 adds to what it has reduced.
    Injection(function="go_backward_twice_for_one_step", stages=(3,), windows=(1, 1)),
)
JOBS = jobs_of(*MISUSES, *TWINS)


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(MISUSES, "raise", "warn", "count"))
def test_backwards_on_the_wrong_side_of_a_boundary_are_reported(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_misuse(injection, stage, mode, answers)


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(TWINS, "raise"))
def test_backwards_on_the_right_side_are_silent(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_silence(injection, stage, mode, answers)
