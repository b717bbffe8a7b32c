"""The window's constant: the same on every rank, exact where all counts are equal, a power of two elsewhere."""

from __future__ import annotations

import math

import pytest
from launch import Answer, Job, launch

pytest.importorskip("torch")
pytest.importorskip("deepspeed")

from ds_accum.engine.constant import constant_after, constant_near, power_of_two_near
from ds_accum.engine.totals import WindowTotals

MICRO_BATCHES = 4.0
_COUNTS = {
    "equal": ((7, 7), 28.0),
    "different": ((5, 10), 32.0),
    "one empty": ((0, 9), 16.0),
    "all empty": ((0, 0), 1.0),
    "apart by a thousand": ((1, 1023), 2048.0),
}


@pytest.fixture(scope="module")
def answers() -> dict[str, Answer]:
    jobs = [
        Job(
            name=name,
            function="collectives:agree",
            arguments={"counts": counts, "micro_batches": MICRO_BATCHES},
        )
        for name, (counts, _) in _COUNTS.items()
    ]
    return launch(jobs, timeout=600)


@pytest.mark.parametrize("name", _COUNTS)
def test_ranks_agree_on_a_constant_from_their_first_counts(name: str, answers: dict[str, Answer]) -> None:
    answers[name].value()
    assert answers[name].values == (_COUNTS[name][1],) * 2


def _totals(*counts: float) -> WindowTotals:
    total = float(sum(counts))
    filled = min((count for count in counts if count), default=math.inf)
    return WindowTotals.of([(total, 1.0, 0.0, len(counts), 1.0, max(counts), min(counts), filled)])


def test_after_a_window_of_equal_counts_the_constant_is_exact() -> None:
    assert constant_after(_totals(7, 7, 7), micro_batches=MICRO_BATCHES, of=3) == 28.0


def test_after_any_other_window_it_is_a_power_of_two_near_the_mean() -> None:
    assert constant_after(_totals(5, 10), micro_batches=MICRO_BATCHES, of=2) == 32.0
    for counts in ((1, 1000), (0, 3), (1, 2, 3), (9, 100_000)):
        constant = constant_after(_totals(*counts), micro_batches=MICRO_BATCHES, of=len(counts))
        assert constant is not None
        mean = sum(counts) / len(counts) * MICRO_BATCHES
        assert math.log2(constant).is_integer() and 2**-0.5 <= constant / mean <= 2**0.5


def test_after_a_window_that_counted_nothing_there_is_none() -> None:
    assert constant_after(_totals(0, 0), micro_batches=MICRO_BATCHES, of=2) is None


def test_a_declared_number_of_tokens_is_taken_as_it_is() -> None:
    assert constant_near(1000, micro_batches=MICRO_BATCHES) == 4000
    assert constant_near(0.5, micro_batches=MICRO_BATCHES) == MICRO_BATCHES


@pytest.mark.parametrize(("number", "power"), [(1, 1), (3, 4), (2.8, 2), (1000, 1024), (0.3, 0.25)])
def test_the_nearest_power_of_two_is_nearest_by_ratio(number: float, power: float) -> None:
    assert power_of_two_near(number) == power


@pytest.mark.parametrize("number", [0, -1, math.inf, math.nan])
def test_what_is_no_positive_number_is_near_one(number: float) -> None:
    assert power_of_two_near(number) == 1.0
