"""Times are read as their digits say, and what is no time is refused in one sentence."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_accum.errors import UsageError
from ds_accum.plan.pipeline import stage_times
from ds_accum.plan.pipeline.times import exact


def test_a_tenth_is_a_tenth() -> None:
    assert exact(0.1, name="time") == exact(Decimal("0.1"), name="time") == Fraction(1, 10)


@settings(deadline=None)
@given(st.decimals("1e-9", "1e9", places=9))
def test_a_decimal_is_read_digit_by_digit(number: Decimal) -> None:
    assert exact(number, name="time") == Fraction(str(number))


@settings(deadline=None)
@given(st.floats(1e-12, 1e12))
def test_a_float_is_read_as_it_is_shown(number: float) -> None:
    assert float(exact(number, name="time")) == number


def test_one_time_stands_for_all_stages_and_a_backward_for_two_forwards() -> None:
    times = stage_times(3, forward=0.5)
    assert times.forward == (Fraction(1, 2),) * 3
    assert times.backward == (Fraction(1),) * 3
    assert times.are_equal


def test_a_slow_stage_is_slow_in_both_directions_and_twice_slow_multiplies() -> None:
    times = stage_times(4, slow={2: 1.3})
    assert times.forward[2] == Fraction("1.3")
    assert times.backward == (2, 2, Fraction("2.6"), 2)
    assert not times.are_equal
    assert times.scaled([Fraction(2)] * 4).per_micro_batch[2] == Fraction("7.8")


def test_transfers_make_equal_stages_unequal_to_what_formulas_are_about() -> None:
    assert not stage_times(4, transfer=0.01).are_equal


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"forward": [1, 1, 1]}, "there are 3 forward times for 4 stages"),
        ({"backward": [1, 1, 1, 1, 1]}, "there are 5 backward times for 4 stages"),
        ({"forward": float("nan")}, "forward time must be a number, not nan"),
        ({"forward": [1, 1, float("inf"), 1]}, "forward time of stage 2 must be a number, not inf"),
        ({"forward": 0}, "forward time must be more than 0, not 0"),
        ({"forward": -1.5}, "forward time must be more than 0, not -1.5"),
        ({"backward": [1, -1, 1, 1]}, "backward time of stage 1 must be more than 0, not -1"),
        ({"transfer": -0.1}, "transfer time must be at least 0, not -0.1"),
        ({"forward": 1e300}, "must be between 1e-12 and 1e12"),
        ({"forward": Decimal("1e999999999")}, "must be between 1e-12 and 1e12"),
        ({"transfer": Decimal("1e-999999999")}, "must be between 1e-12 and 1e12"),
        ({"forward": 10**400}, "about 10.400"),
        ({"forward": "1"}, "forward time must be a number, not a str"),
        ({"forward": ["1", 1, 1, 1]}, "forward time of stage 0 must be a number, not a str"),
        ({"forward": True}, "not a bool"),
        ({"forward": None}, "not a NoneType"),
        ({"slow": {4: 1.3}}, "no stage 4 in a pipeline of 4"),
        ({"slow": {-1: 1.3}}, "slow stage must be at least 0"),
        ({"slow": {2: 0}}, "the factor of stage 2 must be more than 0"),
        ({"weight_share": 1}, "must be below 1"),
        ({"weight_share": -0.5}, "must be at least 0"),
    ],
)
def test_what_is_no_time_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as refused:
        stage_times(4, **options)
    assert refused.value.remedy
    assert len(str(refused.value)) < 200


def test_no_stages_are_refused() -> None:
    with pytest.raises(UsageError, match="stages must be at least 1"):
        stage_times(0)
