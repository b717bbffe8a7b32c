"""`optimizer.step()` past the engine is reported before it touches a gradient, on every wrapper."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from guards.injecting import Injection, check_misuse, check_silence, jobs_of, trials
from launch import Answer

SAYS = r"^optimizer\.step\(\) was called past the engine after micro-batch {} of 2 of step 1: "

# Only a plain optimizer gets through with it: the wrappers find no complete gradient, and fail.
MISUSES = (
    Injection(
        function="step_the_optimizer_between", error="SteppedPastEngineError", says=SAYS.format(1), let_pass=(0,)
    ),
    Injection(
        function="step_the_optimizer_at_the_boundary",
        error="SteppedPastEngineError",
        says=SAYS.format(2),
        let_pass=(0,),
    ),
    Injection(function="step_the_optimizer_between", dtype="bf16", error="SteppedPastEngineError", says=SAYS.format(1)),
    Injection(function="step_the_optimizer_between", dtype="fp16", error="SteppedPastEngineError", says=SAYS.format(1)),
    Injection(
        function="step_the_optimizer_between",
        stages=(1,),
        dtype="bf16",
        config={"data_types": {"grad_accum_dtype": "fp32"}},
        error="SteppedPastEngineError",
        says=SAYS.format(1),
    ),
    Injection(
        function="step_the_optimizer_inside_between", error="SteppedPastEngineError", says=SAYS.format(1), let_pass=(2,)
    ),
)
TWINS = (Injection(function="keep_the_replicas", stages=(0, 2)),)
JOBS = jobs_of(*MISUSES, *TWINS)


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(MISUSES, "raise", "warn", "count"))
def test_a_step_past_the_engine_is_reported(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_misuse(injection, stage, mode, answers)


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(TWINS, "raise"))
def test_the_steps_of_the_engine_are_silent(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_silence(injection, stage, mode, answers)
