from __future__ import annotations

import dataclasses
import math

import pytest

from ds_accum.compare.measures import (
    Quartiles,
    by_kind_and_moment,
    formula_differences,
    is_within_tolerance,
    paired_ratio,
    quartiles,
    ring_bytes,
    same_training,
)
from ds_accum.compare.result import CollectiveCount, CollectiveKind, Communication, VariantResult
from tests.compare.example import comparison, variant


def count(kind: CollectiveKind, size: float, calls: float = 1.0) -> CollectiveCount:
    return CollectiveCount(kind=kind, moment="step", calls=calls, bytes=size)


def timed(*seconds: float) -> VariantResult:
    first = comparison().results[0]
    assert first.speed is not None
    return dataclasses.replace(first, speed=dataclasses.replace(first.speed, step_seconds=seconds))


def test_quartiles_lie_between_values_and_skip_what_is_no_number() -> None:
    assert quartiles([4, 1, 3, 2, math.nan, math.inf]) == Quartiles(low=1.75, median=2.5, high=3.25)
    assert quartiles([7]) == Quartiles(low=7, median=7, high=7)
    assert quartiles([math.nan]) is None


def test_steps_are_compared_in_pairs_so_that_a_slow_machine_slows_both() -> None:
    ratio = paired_ratio(timed(2, 20, 200), timed(1, 10, 100))
    assert ratio == Quartiles(low=2, median=2, high=2)
    assert paired_ratio(timed(1, 2), timed(1)) is None
    assert paired_ratio(timed(1), timed(0)) is None
    assert paired_ratio(dataclasses.replace(timed(1), speed=None), timed(1)) is None


@pytest.mark.parametrize(
    ("kind", "sent"),
    [("all-reduce", 150), ("reduce-scatter", 75), ("all-gather", 300), ("broadcast", 100), ("other", 100)],
)
def test_on_a_ring_of_four(kind: CollectiveKind, sent: float) -> None:
    assert ring_bytes([count(kind, 100.0)], 4) == sent
    assert ring_bytes([count(kind, 100.0)], 1) == 0


def test_a_ring_sends_the_same_for_an_all_reduce_as_for_its_two_halves() -> None:
    halves = [count("reduce-scatter", 100.0), count("all-gather", 25.0)]
    assert ring_bytes([count("all-reduce", 100.0)], 4) == ring_bytes(halves, 4)


def test_counts_of_one_kind_and_moment_are_added_and_nothing_is_left_out() -> None:
    counts = [count("all-reduce", 4.0), count("all-reduce", 1.0), count("broadcast", 0.0, calls=0.0)]
    assert by_kind_and_moment(counts) == {("all-reduce", "step"): (2.0, 5.0)}


def test_a_difference_from_the_formula_is_found_on_either_side() -> None:
    result = comparison().results[0]
    counted, expected = (
        (count("all-reduce", 4.0), count("all-gather", 8.0)),
        (count("all-reduce", 5.0), count("broadcast", 1.0)),
    )
    differing = dataclasses.replace(result, communication=Communication(counted=counted, expected=expected))
    assert formula_differences(differing) == [
        ("all-reduce", "step", (1.0, 4.0), (1.0, 5.0)),
        ("all-gather", "step", (1.0, 8.0), (0.0, 0.0)),
        ("broadcast", "step", (0.0, 0.0), (1.0, 1.0)),
    ]
    alike = dataclasses.replace(result, communication=Communication(counted=counted, expected=counted[::-1]))
    assert formula_differences(alike) == []
    unknown = dataclasses.replace(result, communication=Communication(counted=counted, expected=None))
    assert formula_differences(unknown) == []


@pytest.mark.parametrize(
    ("error", "within"),
    [(0.0, True), (1e-5, True), (1.1e-5, False), (math.inf, False), (math.nan, False), (None, None)],
)
def test_an_error_that_is_no_number_is_not_explained_by_rounding(error: float | None, within: bool | None) -> None:
    result = comparison().results[0]
    assert result.parity is not None
    changed = dataclasses.replace(result, parity=dataclasses.replace(result.parity, largest_error=error))
    assert is_within_tolerance(changed) is within


def test_our_own_block_does_not_make_another_training() -> None:
    stock = variant("stock", 2, varied={"zero_optimization.overlap_comm": True})
    token = variant("token", 2, varied={"zero_optimization.overlap_comm": True, "ds_accum.on_misuse": "warn"})
    assert same_training(stock) == same_training(token)
    assert same_training(stock) != same_training(variant("stock", 2))
    assert same_training(stock) != same_training(dataclasses.replace(stock, coalesce=True))
