"""Where every micro-batch counts the same number of tokens, the engine is stock DeepSpeed, to the last bit.

Then the token mean is the mean of means. Both engines are stepped in turn in one process, for ten steps: a mean loss, an
accumulation that is a power of two, so that stock DeepSpeed's own division rounds nothing away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matrix
import pytest
from cases import Case
from launch import Answer, launch

STEPS = 10
LOW_PRECISIONS = ("fp32", "bf16")


def _cases() -> list[Case]:
    cases = []
    for stage in matrix.STAGES:
        for dtype in LOW_PRECISIONS:
            for optimizer in ("sgd", "adamw"):
                # There, stock DeepSpeed takes an update while it starts, and its Adam is one step late for good.
                if stage == 0 and dtype == "bf16" and optimizer == "adamw":
                    continue
                for clipping, word in ((matrix.ACTIVE, "clipped"), (0.0, "unclipped")):
                    name = f"zero-{stage} {dtype} {optimizer} {word}"
                    more: dict[str, Any] = {"optimizer": optimizer, "data": "even", "windows": (4,) * STEPS}
                    cases.append(Case(name=name, stage=stage, dtype=dtype, clipping=clipping, **more))  # type: ignore[arg-type]
    return cases


def _declared() -> list[Case]:
    """The same from the first window on, whose counts are declared."""
    cases = []
    for stage in matrix.STAGES:
        for dtype in LOW_PRECISIONS:
            more: dict[str, Any] = {"data": "even", "windows": (4,) * STEPS, "clipping": matrix.ACTIVE}
            cases += [
                Case(name=f"zero-{stage} {dtype} look-ahead", stage=stage, dtype=dtype, look_ahead=True, **more),  # type: ignore[arg-type]
                Case(
                    name=f"zero-{stage} {dtype} initial tokens",
                    stage=stage,
                    dtype=dtype,  # type: ignore[arg-type]
                    # Two samples of 8.
                    block={"initial_tokens": 16},
                    **more,
                ),
            ]
    return cases


DECLARED, AGREED = _declared(), _cases()
UNEVEN = Case(name="uneven", stage=2, dtype="fp32", windows=(4,) * 3)


@pytest.fixture(scope="module")
def answers() -> Mapping[str, Answer]:
    return launch(case.job("alternation:compare_bits") for case in [*DECLARED, *AGREED, UNEVEN])


@pytest.mark.parametrize("case", [*DECLARED, *AGREED], ids=lambda case: case.name)
def test_equal_counts_change_no_bit(case: Case, answers: Mapping[str, Answer]) -> None:
    steps = answers[case.name].value()
    assert len(steps) == STEPS
    assert [step["different"] for step in steps] == [0] * STEPS, f"by up to {max(step['furthest'] for step in steps)}"
    for step in steps:
        stock, ours = step["losses"]
        assert stock == ours
        stock, ours = step["norms"]
        # A plain optimizer's norm, DeepSpeed drops.
        assert stock == ours or (stock is None and case.stage == 0)


def test_uneven_counts_change_them(answers: Mapping[str, Answer]) -> None:
    assert all(step["different"] > 10_000 for step in answers[UNEVEN.name].value())
