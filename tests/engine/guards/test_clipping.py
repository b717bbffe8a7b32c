"""Clipping by hand is reported: between micro-batches everywhere, at the boundary where it is a second clip or none."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from guards.injecting import Injection, check_misuse, check_silence, jobs_of, trials
from launch import Answer

BETWEEN = "after micro-batch 1 of 2 of step 1: each micro-batch would weigh by how much it was clipped"

MISUSES = (
    Injection(
        function="clip_norm_between",
        error="ClippedByHandError",
        says=f"^clip_grad_norm_ .* {BETWEEN}",
        let_pass=(0, 1, 2),
    ),
    Injection(
        function="clip_value_between", error="ClippedByHandError", says=f"^clip_grad_value_ .* {BETWEEN}", let_pass=(0,)
    ),
    Injection(
        function="clip_with_a_function_imported_early",
        error="ClippedByHandError",
        says=f"^clip_grad_norm_ .* {BETWEEN}",
        let_pass=(1,),
    ),
    Injection(
        function="clip_with_a_norm_of_ones_own",
        error="ClippedByHandError",
        says=f"^clip_grads_with_norm_ .* {BETWEEN}",
        let_pass=(2,),
    ),
    Injection(
        function="clip_at_the_boundary",
        stages=(0,),
        error="ClippedByHandError",
        says="after micro-batch 2 of 2 .*gradient_clipping is 0.05, so that they would be clipped twice",
        let_pass=(0,),
        clipping=0.05,
    ),
    Injection(
        function="clip_at_the_boundary",
        stages=(1, 2, 3),
        error="ClippedByHandError",
        says="after micro-batch 2 of 2 .*it would change nothing",
        let_pass=(2,),
    ),
    Injection(
        function="clip_at_the_boundary",
        stages=(0, 1, 2, 3),
        dtype="bf16",
        error="ClippedByHandError",
        says="after micro-batch 2 of 2 .*it would change nothing",
        let_pass=(0,),
    ),
)
TWINS = (
    Injection(function="clip_at_the_boundary", stages=(0,)),
    Injection(function="clip_between_windows"),
    Injection(function="clip_another_model", stages=(0, 2)),
)
JOBS = jobs_of(*MISUSES, *TWINS)


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(MISUSES, "raise"))
def test_clipping_by_hand_is_refused(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_misuse(injection, stage, mode, answers)


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(MISUSES, "warn", "count"))
def test_clipping_by_hand_is_warned_about_or_counted_once_where_it_is_let_pass(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_misuse(injection, stage, mode, answers)
    # One hand, one misuse: the edit that a clip is, too, is not told again.
    assert all(
        set(step) <= {"ClippedByHandError"}
        for found in injection.found(answers, stage, mode)
        for step in found["misuses"]
    )


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(TWINS, "raise"))
def test_clipping_where_it_is_right_or_no_matter_is_silent(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_silence(injection, stage, mode, answers)
