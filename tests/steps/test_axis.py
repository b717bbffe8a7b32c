"""Which height a value is drawn at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_accum.steps.axis import Axis


def test_an_axis_goes_from_the_lowest_to_the_highest_value() -> None:
    axis = Axis.over([3.0, 1.0, 2.0])
    assert [axis.height(value) for value in (1.0, 2.0, 3.0)] == [0.0, 0.5, 1.0]
    assert axis.value(0.5) == 2.0 and not axis.is_logarithmic


def test_an_axis_is_logarithmic_where_a_spike_dwarfs_the_rest() -> None:
    axis = Axis.over([1.0, 1.0, 1.0, 100.0])
    assert axis.is_logarithmic
    assert (axis.height(10.0), axis.value(0.5)) == (pytest.approx(0.5), pytest.approx(10.0))
    assert not Axis.over([0.0, 1.0, 1.0, 100.0]).is_logarithmic


@given(st.lists(st.floats(min_value=-1e300, max_value=1e300), min_size=1))
def test_every_value_has_a_height(values: list[float]) -> None:
    axis = Axis.over(values)
    assert all(-1e-9 <= axis.height(value) <= 1 + 1e-9 for value in values)
