"""What makes a right step, by the counts of its events."""

from __future__ import annotations

import pytest

from ds_accum.steps.events import what_is_wrong


@pytest.mark.parametrize(
    "counts",
    [
        (8, True, 8, 1, 1, 1, 1),  # reduced at the boundary
        (8, True, 8, 8, 1, 1, 1),  # ZeRO-2 and 3
        (8, True, 8, 1, 0, 1, 1),  # nobody takes a norm
        (1, True, 1, 1, 1, 1, 1),
        (8, False, 8, 1, 1, 0, 1),  # overflow
        (8, False, 8, 0, 0, 0, 0),
        (0, False, 0, 0, 0, 0, 0),
    ],
)
def test_a_right_step_is_right(counts: tuple[int, bool, int, int, int, int, int]) -> None:
    assert what_is_wrong(*counts) is None


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        ((8, True, 7, 1, 1, 1, 1), "7 backwards for 8 micro-batches"),
        ((1, True, 2, 1, 1, 1, 1), "2 backwards for 1 micro-batch"),
        ((8, True, 8, 4, 1, 1, 1), "4 reductions for 8 backwards"),
        ((8, True, 8, 0, 1, 1, 1), "0 reductions for 8 backwards"),
        ((8, True, 8, 1, 2, 1, 1), "2 norms, not 1 at most"),
        ((8, True, 8, 1, 1, 2, 1), "2 updates, not 1"),
        ((8, True, 8, 1, 1, 0, 1), "0 updates, not 1"),
        ((8, False, 8, 1, 1, 1, 1), "1 update, not 0"),
        ((8, True, 8, 1, 1, 1, 0), "0 zeroings of gradients, not 1"),
    ],
)
def test_what_is_wrong_is_said(counts: tuple[int, bool, int, int, int, int, int], sentence: str) -> None:
    assert what_is_wrong(*counts) == sentence
