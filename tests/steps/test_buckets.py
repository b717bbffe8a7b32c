"""Many steps on few columns: nothing that sticks out is lost, and each value is where its step is."""

from __future__ import annotations

import math
from array import array

from hypothesis import given
from hypothesis import strategies as st

from ds_accum.steps.buckets import bucketed, counted

VALUES = st.lists(st.floats(min_value=-1e300, max_value=1e300) | st.sampled_from([math.nan, math.inf]), min_size=1)


@given(VALUES, st.integers(1, 50), st.integers(1, 10**9), st.integers(1, 7))
def test_the_lowest_and_the_highest_value_of_all_are_kept(
    values: list[float], columns: int, first: int, stride: int
) -> None:
    steps = array("q", range(first, first + stride * len(values), stride))
    buckets = bucketed(steps, values, columns)
    known = [value for value in values if math.isfinite(value)]
    filled = [bucket for bucket in buckets if bucket is not None]
    assert len(buckets) == columns
    assert min(known, default=None) == min((bucket.low for bucket in filled), default=None)
    assert max(known, default=None) == max((bucket.high for bucket in filled), default=None)
    for bucket in filled:
        assert bucket.low <= bucket.first <= bucket.high and bucket.low <= bucket.last <= bucket.high
        assert bucket.low <= bucket.mean <= bucket.high


def test_each_column_has_as_many_step_numbers() -> None:
    buckets = bucketed([1, 2, 3, 10], [1.0, 5.0, 3.0, 9.0], 5)
    assert [bucket and (bucket.first, bucket.last, bucket.low, bucket.high, bucket.mean) for bucket in buckets] == [
        (1.0, 5.0, 1.0, 5.0, 3.0),
        (3.0, 3.0, 3.0, 3.0, 3.0),
        None,
        None,
        (9.0, 9.0, 9.0, 9.0, 9.0),
    ]


def test_marked_steps_are_counted_where_they_are() -> None:
    assert counted(range(1, 101), [1, 2, 51, 100], 4) == [2, 0, 1, 1]


@given(st.lists(st.integers(1, 1000), unique=True, min_size=1), st.integers(1, 100))
def test_a_mark_is_on_the_column_of_its_value(steps: list[int], columns: int) -> None:
    steps.sort()
    filled = [index for index, bucket in enumerate(bucketed(steps, [1.0] * len(steps), columns)) if bucket]
    assert [index for index, count in enumerate(counted(steps, steps, columns)) if count] == filled
