"""Setting gradients to zero inside a window is reported before it is done; between windows it is silent."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from guards.injecting import Injection, check_misuse, check_silence, jobs_of, trials
from launch import Answer

MISUSES = (
    Injection(
        function="zero_through_the_engine_between",
        error="GradientsZeroedError",
        says=r"^engine\.zero_grad\(\) was called after micro-batch 1 of 2 of step 1: ",
        let_pass=(0, 1, 2, 3),
    ),
    Injection(
        function="zero_through_the_optimizer_between",
        error="GradientsZeroedError",
        says=r"^optimizer\.zero_grad\(\) was called after micro-batch 1 of 2 of step 1: ",
        let_pass=(0, 3),
    ),
    Injection(
        function="zero_through_the_optimizer_between",
        dtype="bf16",
        error="GradientsZeroedError",
        says=r"^optimizer\.zero_grad\(\) was called after micro-batch 1 of 2 of step 1: ",
    ),
    Injection(
        function="zero_through_the_engine_at_the_boundary",
        error="GradientsZeroedError",
        says=r"^engine\.zero_grad\(\) was called after micro-batch 2 of 2 of step 1: ",
    ),
    Injection(
        function="zero_through_the_module_at_the_boundary",
        stages=(0,),
        error="GradientsZeroedError",
        says='^the gradient of "positions" was dropped after micro-batch 2 of 2 of step 1: ',
        let_pass=(0,),
    ),
    *(
        Injection(
            function=function,
            stages=(2, 3),
            error="GradientsZeroedError",
            says=rf"^{call}\.zero_grad\(\) was called after micro-batch 1 of 2 of step 1: ",
            block={"reduction": "boundary"},
        )
        for function, call in (
            ("zero_through_the_engine_between", "engine"),
            ("zero_through_the_optimizer_between", "optimizer"),
        )
    ),
)
TWINS = (
    Injection(function="zero_between_windows"),
    Injection(function="zero_between_windows", dtype="bf16"),
    # Nothing is left there that could be lost.
    Injection(function="zero_through_the_module_at_the_boundary", stages=(1, 2, 3)),
    Injection(function="zero_through_the_module_between", stages=(2, 3)),
    Injection(function="zero_between_windows", stages=(2, 3), block={"reduction": "boundary"}),
)
JOBS = jobs_of(*MISUSES, *TWINS)


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(MISUSES, "raise", "warn", "count"))
def test_zeroing_gradients_inside_a_window_is_reported_once(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_misuse(injection, stage, mode, answers)
    assert all(
        set(step) <= {injection.error} for found in injection.found(answers, stage, mode) for step in found["misuses"]
    )


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(TWINS, "raise"))
def test_zeroing_gradients_that_are_zero_is_silent(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_silence(injection, stage, mode, answers)
