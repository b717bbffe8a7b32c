"""Where every micro-batch counts the same number of tokens, the engine is stock DeepSpeed, to the last bit.

Then the token mean is the mean of means. Both engines are stepped in turn in one process, for ten steps: a mean loss, an
accumulation that is a power of two, so that stock DeepSpeed's own division rounds nothing away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matrix
import pytest
from cases import Case, Dtype
from launch import Answer, launch

STEPS = 10
PRECISIONS: tuple[Dtype, ...] = ("fp32", "bf16")


def _agreed() -> list[Case]:
    """The first window's counts are agreed by a collective."""
    cases = []
    for stage in matrix.STAGES:
        for dtype in PRECISIONS:
            even: dict[str, Any] = {"stage": stage, "dtype": dtype, "data": "even", "windows": (4,) * STEPS}
            cases.append(Case(name=f"zero-{stage} {dtype} sgd clipped", clipping=matrix.ACTIVE, **even))
            # There, stock DeepSpeed takes an update while it starts, and its Adam is one step late for good.
            if (stage, dtype) != (0, "bf16"):
                cases.append(Case(name=f"zero-{stage} {dtype} adamw", optimizer="adamw", **even))
    return cases


def _declared() -> list[Case]:
    """They are declared, for the whole window or as what to expect of a micro-batch: two samples of 8 tokens."""
    cases = []
    for stage in matrix.STAGES:
        even: dict[str, Any] = {"stage": stage, "data": "even", "windows": (4,) * STEPS}
        cases.append(Case(name=f"zero-{stage} fp32 look-ahead", dtype="fp32", look_ahead=True, **even))
        cases.append(Case(name=f"zero-{stage} bf16 initial tokens", dtype="bf16", block={"initial_tokens": 16}, **even))
    return cases


def _means_of_means() -> list[Case]:
    """What is asked for is what DeepSpeed does, uneven as the counts may be; with and without counts that are known."""
    return [
        Case(
            name=f"zero-{stage} {dtype} mean of means",
            stage=stage,
            dtype=dtype,
            clipping=matrix.ACTIVE,
            windows=(4,) * STEPS,
            block={"normalization": "micro_batch"},
        )
        for stage in matrix.STAGES
        for dtype in PRECISIONS
    ]


CASES = [*_agreed(), *_declared(), *_means_of_means()]
UNEVEN = Case(name="uneven", stage=2, dtype="fp32", windows=(4,) * 3)


@pytest.fixture(scope="module")
def answers() -> Mapping[str, Answer]:
    return launch(case.job("alternation:compare_bits") for case in [*CASES, UNEVEN])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equal_counts_change_no_bit(case: Case, answers: Mapping[str, Answer]) -> None:
    steps = answers[case.name].value()
    assert len(steps) == STEPS
    assert [step["different"] for step in steps] == [0] * STEPS, f"by up to {max(step['furthest'] for step in steps)}"
    for step in steps:
        stock, ours = step["losses"]
        assert stock == ours or "normalization" in case.block
        stock, ours = step["norms"]
        # A plain optimizer's norm, DeepSpeed drops.
        assert stock == ours or (stock is None and case.stage == 0)


def test_uneven_counts_change_them(answers: Mapping[str, Answer]) -> None:
    assert all(step["different"] > 10_000 for step in answers[UNEVEN.name].value())
