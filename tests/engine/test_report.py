"""What a step report works out from its numbers."""

from __future__ import annotations

import dataclasses

import pytest

from ds_accum.engine.report import StepReport
from tests.steps.example_run import report


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"grad_norm": 4.0, "clip_coefficient": 0.25}, 1.0),
        ({"grad_norm": 0.5, "clip_coefficient": 1.0}, 0.5),
        ({"grad_norm": 4.0, "clip_coefficient": None}, 4.0),
        ({"grad_norm": None, "clip_coefficient": None}, None),
        ({"grad_norm": float("inf"), "clip_coefficient": 0.0, "applied": False}, None),
        ({"grad_norm": 4.0, "clip_coefficient": 0.25, "applied": False}, None),
    ],
)
def test_the_clipped_norm_is_that_of_the_gradient_that_the_optimizer_was_given(
    changes: dict[str, float | bool | None], expected: float | None
) -> None:
    assert report(**changes).clipped_norm == expected


def test_a_report_can_not_be_changed_nor_made_from_nameless_numbers() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        report().loss = 0.0  # type: ignore[misc]
    with pytest.raises(TypeError, match="positional"):
        StepReport(1, 8)  # type: ignore[misc]
