"""The one small collective of a step: what it adds up, and that both of its ways say the same."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from launch import Answer, Job, launch

pytest.importorskip("torch")
pytest.importorskip("deepspeed")

import torch

from ds_accum.engine.exchange import EMPTY_RECORD, RECORD_FIELDS, extremes_of
from ds_accum.engine.totals import RankTotals, WindowTotals

#          tokens, loss, nonfinite, micro-batches, constant, largest, smallest, smallest filled
UNEVEN = ((10.0, 5.0, 0.0, 2.0, 16.0, 7.0, 3.0, 3.0), (4.0, 3.0, 1.0, 2.0, 16.0, 4.0, 0.0, 4.0))
EVEN = ((8.0, 5.0, 0.0, 2.0, 16.0, 4.0, 4.0, 4.0), (8.0, 3.0, 0.0, 2.0, 16.0, 4.0, 4.0, 4.0))
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


_SUMS = (
    "smallest_constant",
    "fewest_micro_batches",
    "most_micro_batches",
    "counts_are_mixed",
    "num_tokens",
    "loss_sum",
    "micro_batches",
    "nonfinite",
    "smallest_filled",
    "smallest",
    "largest",
    "constant",
)


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
        RankTotals(num_tokens=10, micro_batches=2),
        RankTotals(num_tokens=4, micro_batches=2),
    )
    assert (totals.num_tokens, totals.micro_batches, totals.loss_sum, totals.nonfinite) == (14, 4, 8.0, 1)


def test_equal_counts_are_told_from_others() -> None:
    assert WindowTotals.of(EVEN).is_even
    assert not WindowTotals.of(UNEVEN).is_even
    # An empty micro-batch among equal ones counts another number of tokens.
    assert not WindowTotals.of((EVEN[0], (4.0, 1.0, 0.0, 2.0, 16.0, 4.0, 0.0, 4.0))).is_even


def test_the_skew_is_the_weight_of_the_smallest_micro_batch_in_a_mean_of_means() -> None:
    # 14 tokens in 4 micro-batches: 3.5 in the mean, 3 in the smallest that has any.
    assert WindowTotals.of(UNEVEN).weighting_skew == pytest.approx(3.5 / 3)
    assert WindowTotals.of(EVEN).weighting_skew == 1.0
    assert WindowTotals.of(ALL_EMPTY).weighting_skew is None


def _both_ways(*records: Sequence[float]) -> tuple[WindowTotals, WindowTotals]:
    """The totals of records that are gathered, and of the same that are reduced, without a process."""
    table = torch.tensor(records, dtype=torch.float64)
    extremes = torch.stack([extremes_of(record) for record in table]).amax(dim=0)
    reduced = WindowTotals.of_reduced(table[:, :4].sum(dim=0).tolist(), extremes[:3].tolist(), (-extremes[3:]).tolist())
    return WindowTotals.of(records), reduced


def _changed(record: Sequence[float], **values: float) -> tuple[float, ...]:
    return tuple(values.get(name, value) for name, value in zip(RECORD_FIELDS, record, strict=True))


def test_two_thousand_ranks_are_told_of_one_that_has_other_micro_batches_or_another_constant() -> None:
    alike = [EVEN[0]] * 2000
    for totals in _both_ways(*alike):
        assert (totals.fewest_micro_batches, totals.most_micro_batches) == (2, 2)
        assert (totals.smallest_constant, totals.constant) == (16.0, 16.0)
    for totals in _both_ways(*alike, _changed(EVEN[0], micro_batches=3.0)):
        assert (totals.fewest_micro_batches, totals.most_micro_batches) == (2, 3)
    for totals in _both_ways(*alike, _changed(EVEN[0], constant=15.0)):
        assert (totals.smallest_constant, totals.constant) == (15.0, 16.0)


def test_a_rank_without_a_micro_batch_has_no_constant_but_a_number() -> None:
    for totals in _both_ways(EVEN[0], EMPTY_RECORD):
        assert (totals.smallest_constant, totals.constant) == (16.0, 16.0)
        assert (totals.fewest_micro_batches, totals.most_micro_batches) == (0, 2)
        assert totals.is_even and not totals.counts_are_mixed


def test_a_window_without_a_micro_batch_has_no_extremes() -> None:
    for totals in _both_ways(*ALL_EMPTY):
        assert (totals.num_tokens, totals.micro_batches, totals.constant, totals.smallest_constant) == (0, 0, 0.0, 0.0)
        assert (totals.smallest, totals.smallest_filled, totals.largest) == (math.inf, math.inf, -math.inf)


def test_counts_that_only_some_ranks_know_are_told_from_those_that_nobody_or_everybody_knows() -> None:
    unknown = _changed(EVEN[0], num_tokens=math.nan, smallest_filled=math.nan, smallest=math.nan, largest=math.nan)
    for records, mixed in (
        ((EVEN[0], EVEN[1]), False),
        ((unknown, unknown), False),
        ((unknown, EMPTY_RECORD), False),
        ((unknown, EVEN[0]), True),
        ((EVEN[0], unknown), True),
        ((_changed(EVEN[0], num_tokens=0.0, smallest=0.0, largest=0.0), unknown), True),
    ):
        for totals in _both_ways(*records):
            assert totals.counts_are_mixed is mixed
            assert not (totals.is_even and unknown in records)


def test_what_is_reduced_takes_at_most_64_bytes_at_a_time() -> None:
    record = torch.tensor(UNEVEN[0], dtype=torch.float64)
    assert extremes_of(record).numel() * 8 == 64


def test_an_unknown_count_makes_the_total_unknown() -> None:
    unknown = (math.nan, 2.0, 0.0, 2.0, 4.0, math.nan, math.nan, math.nan)
    totals = WindowTotals.of((unknown, unknown))
    assert totals.num_tokens is None and totals.weighting_skew is None and totals.loss_sum == 4.0
