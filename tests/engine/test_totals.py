"""The one small collective of a step: what it adds up, and that both of its ways say the same."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from launch import Answer, Job, launch

pytest.importorskip("torch")
pytest.importorskip("deepspeed")

from ds_accum.engine.totals import EMPTY_RECORD, RECORD_FIELDS, RankTotals, WindowTotals

#          tokens, loss, micro-batches, nonfinite, smallest filled, smallest, largest, constant
UNEVEN = ((10.0, 5.0, 2.0, 0.0, 3.0, 3.0, 7.0, 16.0), (4.0, 3.0, 2.0, 1.0, 4.0, 0.0, 4.0, 16.0))
EVEN = ((8.0, 5.0, 2.0, 0.0, 4.0, 4.0, 4.0, 16.0), (8.0, 3.0, 2.0, 0.0, 4.0, 4.0, 4.0, 16.0))
ONE_EMPTY = (UNEVEN[0], EMPTY_RECORD)
ALL_EMPTY = (EMPTY_RECORD, EMPTY_RECORD)
_RECORDS = {"uneven": UNEVEN, "even": EVEN, "one empty": ONE_EMPTY, "all empty": ALL_EMPTY}


@pytest.fixture(scope="module")
def answers() -> dict[str, Answer]:
    jobs = [
        Job(
            name=f"{name}, at most {most}",
            function="collectives:gather",
            # JSON has no infinity.
            arguments={"most": most, "records": [[str(number) for number in record] for record in records]},
        )
        for name, records in _RECORDS.items()
        for most in (1, 1024)
    ]
    return launch(jobs, timeout=600)


def _as_said(totals: WindowTotals, names: Sequence[str]) -> dict[str, str]:
    return {name: str(getattr(totals, name)) for name in names}


_SUMS = ("num_tokens", "loss_sum", "micro_batches", "nonfinite", "smallest_filled", "smallest", "largest", "constant")


@pytest.mark.parametrize("name", _RECORDS)
def test_every_rank_gathers_what_one_process_adds_up(name: str, answers: dict[str, Answer]) -> None:
    answer = answers[f"{name}, at most 1024"]
    answer.value()
    expected = WindowTotals.of(_RECORDS[name])
    for found in answer.values:
        assert {key: found[key] for key in _SUMS} == _as_said(expected, _SUMS)
        assert found["even"] == expected.is_even
        assert found["per_rank"] != "None"


@pytest.mark.parametrize("name", _RECORDS)
def test_above_the_limit_only_what_each_rank_had_is_not_known(name: str, answers: dict[str, Answer]) -> None:
    answer = answers[f"{name}, at most 1"]
    answer.value()
    expected = WindowTotals.of(_RECORDS[name])
    for found in answer.values:
        assert {key: found[key] for key in _SUMS} == _as_said(expected, _SUMS)
        assert found["even"] == expected.is_even
        assert found["per_rank"] == "None"


def test_a_rank_contributes_64_bytes() -> None:
    assert len(RECORD_FIELDS) == len(EMPTY_RECORD) == 64 // 8


def test_each_rank_is_known_by_its_own_part() -> None:
    totals = WindowTotals.of(UNEVEN)
    assert totals.per_rank == (
        RankTotals(num_tokens=10, micro_batches=2, constant=16.0),
        RankTotals(num_tokens=4, micro_batches=2, constant=16.0),
    )
    assert (totals.num_tokens, totals.micro_batches, totals.loss_sum, totals.nonfinite) == (14, 4, 8.0, 1)


def test_equal_counts_are_told_from_others() -> None:
    assert WindowTotals.of(EVEN).is_even
    assert not WindowTotals.of(UNEVEN).is_even
    # An empty micro-batch among equal ones counts another number of tokens.
    assert not WindowTotals.of((EVEN[0], (4.0, 1.0, 2.0, 0.0, 4.0, 0.0, 4.0, 16.0))).is_even


def test_the_skew_is_the_weight_of_the_smallest_micro_batch_in_a_mean_of_means() -> None:
    # 14 tokens in 4 micro-batches: 3.5 in the mean, 3 in the smallest that has any.
    assert WindowTotals.of(UNEVEN).weighting_skew == pytest.approx(3.5 / 3)
    assert WindowTotals.of(EVEN).weighting_skew == 1.0
    assert WindowTotals.of(ALL_EMPTY).weighting_skew is None


def test_an_unknown_count_makes_the_total_unknown() -> None:
    unknown = (math.nan, 2.0, 2.0, 0.0, math.nan, math.nan, math.nan, 4.0)
    totals = WindowTotals.of((unknown, unknown))
    assert totals.num_tokens is None and totals.weighting_skew is None and totals.loss_sum == 4.0
