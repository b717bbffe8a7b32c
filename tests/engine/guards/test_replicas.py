"""Replicas that differ are found under a thorough check: the first parameter and rank by name, before the update."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from guards.injecting import Injection, check_misuse, check_silence, jobs_of, trials
from launch import Answer

THOROUGH = {"check": "thorough"}
SAYS = 'before the update of step {} the parameter "{}" on rank 1 is not what it is on rank 0: '

MISUSES = (
    Injection(
        function="part_the_replicas",
        stages=(0, 1, 2),
        error="ReplicasDivergedError",
        says=SAYS.format(1, "mlp.bias"),
        let_pass=(0, 1, 2),
        block=THOROUGH,
    ),
    Injection(
        function="part_the_replicas",
        stages=(1, 2),
        dtype="bf16",
        error="ReplicasDivergedError",
        says=SAYS.format(1, "mlp.bias"),
        block=THOROUGH,
    ),
    Injection(
        function="part_frozen_replicas",
        stages=(2,),
        error="ReplicasDivergedError",
        says=SAYS.format(1, "norm.weight"),
        block=THOROUGH,
    ),
    Injection(
        function="part_the_replicas_later",
        stages=(0,),
        windows=(1, 1),
        error="ReplicasDivergedError",
        says=SAYS.format(11, "mlp.bias"),
        block=THOROUGH,
    ),
)
TWINS = (
    *(
        Injection(function="keep_the_replicas", windows=(1, 1), dtype=dtype, block=THOROUGH)
        for dtype in ("fp32", "bf16")
    ),
    # Nobody looks, unless asked to.
    Injection(function="part_the_replicas", stages=(0,)),
)
JOBS = jobs_of(*MISUSES, *TWINS)


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(MISUSES, "raise", "warn", "count"))
def test_replicas_that_differ_are_reported(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_misuse(injection, stage, mode, answers)


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(TWINS, "raise"))
def test_replicas_that_are_equal_or_not_looked_at_are_silent(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_silence(injection, stage, mode, answers)
