"""Each applied step shows that one norm was taken, of the complete gradient, before one update: broken steps are told.

`broken_steps.py` breaks them from the second window on; whole steps, however they are made, are silent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import matrix
import pytest
from cases import Case, Dtype
from guards.injecting import EVERY_STAGE, Injection, jobs_of, trials
from launch import Answer

FP32_ACCUMULATION = {"data_types": {"grad_accum_dtype": "fp32"}}


def _broken(function: str, happened: str, *, stages: tuple[int, ...] = EVERY_STAGE, **more: Any) -> Injection:
    """`happened` is how the second step went, after its backwards and reductions."""
    return Injection(
        function=function,
        stages=stages,
        error="StepOrderError",
        says=f"^step 2 went b (r |b )*{happened}, but a step of 2 micro-batches goes ",
        module="guards.broken_steps",
        clipping=matrix.ACTIVE,
        **more,
    )


def _breaks(dtype: Dtype, **more: Any) -> list[Injection]:
    # ZeRO-3 zeroes before it updates as well as after.
    return [
        _broken("take_the_norm_twice", "r n n (z )?u z( z)?", dtype=dtype, **more),
        _broken("update_twice", "r n (z )?u u z( z)?", dtype=dtype, **more),
        _broken("update_never", "r n z( z)*", dtype=dtype, **more),
        _broken("leave_gradients_as_they_are", "r n u", dtype=dtype, **more),
    ]


BROKEN = [
    *_breaks("fp32", let_pass=(1,)),
    *_breaks("bf16"),
    *_breaks("bf16", stages=(1,), config=FP32_ACCUMULATION),
    *_breaks("fp16", stages=(0, 2)),
    _broken("take_no_norm", "r (z )?u z( z)?", let_pass=(2,)),
    _broken("take_no_norm", "r (z )?u z( z)?", dtype="bf16"),
    # On the other stages DeepSpeed itself fails at these.
    _broken("take_the_norm_before_the_last_reduction", "r n r (z )?u z( z)?", stages=(0, 3), let_pass=(0, 3)),
    _broken("take_a_norm_between_micro_batches", "n b r n (z )?u z( z)?", stages=(3,), let_pass=(3,)),
    _broken("reduce_nothing", "n u z", stages=(0,), let_pass=(0,)),
]


def _whole() -> list[Case]:
    cases = []

    def add(what: str, stages: tuple[int, ...], dtypes: tuple[Dtype, ...] = ("fp32",), **more: Any) -> None:
        for stage in stages:
            for dtype in dtypes:
                name = f"whole zero-{stage} {dtype} {what}"
                cases.append(Case(name=name, stage=stage, dtype=dtype, **{"windows": (2, 2), **more}))

    for clipping in (0.0, matrix.ACTIVE):
        add(f"clipping {clipping:g}", EVERY_STAGE, ("fp32", "bf16", "fp16"), clipping=clipping)
        add(
            f"fp32 accumulation clipping {clipping:g}",
            (1, 2, 3),
            ("bf16",),
            clipping=clipping,
            config=FP32_ACCUMULATION,
        )
    clipped: dict[str, Any] = {"clipping": matrix.ACTIVE}
    add("flush", EVERY_STAGE, ("fp32", "bf16"), accumulate="flush", windows=(4, 1, 3), **clipped)
    add("unmanaged", EVERY_STAGE, accumulate="unmanaged", windows=(2, 3), **clipped)
    add("no_sync", (0, 1), accumulate="no_sync", **clipped)
    add("coalesce", (1, 2, 3), accumulate="coalesce", **clipped)
    add("declared boundary", EVERY_STAGE, accumulate="declared", windows=(2, 3), **clipped)
    add("reduced at the boundary", (1, 2, 3), block={"reduction": "boundary"}, **clipped)
    add(
        "flush reduced at the boundary",
        (1, 2, 3),
        accumulate="flush",
        windows=(4, 1, 3),
        block={"reduction": "boundary"},
    )
    add("optimizer offload", (1, 2, 3), ("fp32", "bf16"), config={"zero_optimization": matrix.OFFLOADED}, **clipped)
    add("scaled loss", (1, 2, 3), backward="scaled loss", **clipped)
    add("bare backward", (1, 2, 3), backward="loss", counts="labels", **clipped)
    add("thorough", EVERY_STAGE, block={"check": "thorough"}, **clipped)
    add("every norm", EVERY_STAGE, ("fp32", "bf16"), block={"report_norm": "always"})
    add("look-ahead", EVERY_STAGE, look_ahead=True, **clipped)
    add("overflow", EVERY_STAGE, ("fp16",), windows=(2, 2, 2), overflows_in=1)
    add("two groups", EVERY_STAGE, optimizer="sgd in two groups", **clipped)
    add("small parts", (3,), config={"zero_optimization": {"sub_group_size": 4000}}, **clipped)
    return cases


WHOLE = _whole()
FINISHED = [
    Case(
        name=f"zero-{stage} {dtype} finished",
        stage=stage,
        dtype=dtype,
        micro_batch_size=1,
        windows=(2, 2, 2),
        clipping=matrix.ACTIVE,
    )
    for stage, dtype in ((0, "fp32"), (0, "bf16"), (1, "fp32"), (2, "bf16"), (3, "fp32"))
]
JOBS = [
    *jobs_of(*BROKEN),
    *(case.job("guards.loop:run_cleanly") for case in WHOLE),
    *(case.job("guards.broken_steps:finish_a_broken_step") for case in FINISHED),
]


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(BROKEN, "raise", "warn", "count"))
def test_a_broken_step_is_told_with_what_happened(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    for found in injection.found(answers, stage, mode):
        if mode == "raise":
            assert found["error"] == "StepOrderError", found
            assert re.search(injection.says, found["text"]), found["text"]
            assert found["misuses"] == [{}], "the first step was whole"
            continue
        assert found["error"] is None, found
        assert found["misuses"] == [{}, {"StepOrderError": 1}]
        assert len(found["warnings"]) == (1 if mode == "warn" else 0), found["warnings"]


@pytest.mark.parametrize("case", FINISHED, ids=lambda case: case.name)
def test_a_broken_step_is_told_when_it_is_finished(case: Case, answers: Mapping[str, Answer]) -> None:
    answer = answers[case.name]
    assert not answer.failed, answer.report
    for found in answer.values:
        for raising, counting in zip(found["raise"], found["count"], strict=True):
            assert (raising.pop("raised"), counting.pop("raised")) == (True, False)
            assert raising == counting
        assert [end["counters"][:2] for end in found["raise"]] == [[4, 2], [6, 3]]
        assert [end["report"][:2] for end in found["raise"]] == [[2, 2], [3, 2]]


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case.name)
def test_a_whole_step_is_silent_and_its_events_are_counted(case: Case, answers: Mapping[str, Answer]) -> None:
    answer = answers[case.name]
    assert not answer.failed, answer.report
    for found in answer.values:
        assert found["error"] is None, found["text"]
        assert found["warnings"] == []
        assert found["misuses"] == [{}] * len(case.windows)
        norms = 0 if found["wrapper"] == "SGD" and not case.clipping and not case.block else 1
        for window, step in enumerate(found["steps"]):
            assert step["applied"] == (window != case.overflows_in)
            if not step["applied"]:
                continue
            backwards = case.windows[window]
            reductions = backwards if _reduces_each_backward(case, found["wrapper"]) else 1
            assert step["events"] == [backwards, reductions, norms, 1, 1]
            assert step["norm"] == bool(norms)


def _reduces_each_backward(case: Case, wrapper: str) -> bool:
    held_back = case.accumulate == "coalesce" or case.block.get("reduction") == "boundary"
    return case.stage >= 2 and not held_back
