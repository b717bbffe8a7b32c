"""Quantiles as everybody computes them, and numbers that can be read."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_accum.steps.numbers import finite, in_full, median, percent, quantile, short

FINITE = st.floats(min_value=-1e300, max_value=1e300)


@given(st.lists(FINITE, min_size=1))
def test_the_median_is_that_of_the_standard_library(values: list[float]) -> None:
    assert median(values) == pytest.approx(statistics.median(values))


@given(st.lists(st.floats(min_value=-1e9, max_value=1e9), min_size=2, max_size=50), st.integers(1, 19))
def test_a_quantile_is_that_of_the_standard_library(values: list[float], twentieth: int) -> None:
    expected = statistics.quantiles(values, n=20, method="inclusive")[twentieth - 1]
    # The place between two values is rounded, so the error is one of the largest value, not of the quantile.
    assert quantile(sorted(values), twentieth / 20) == pytest.approx(expected, abs=1e-12 * max(map(abs, values)))


def test_what_is_no_number_is_left_out() -> None:
    assert finite([1.0, math.nan, math.inf, -math.inf, 2]) == [1.0, 2]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.00012344, "0.0001234"),
        (1.23456, "1.235"),
        (65536.0, "65,536"),
        (999.96, "1,000"),
        (12345.6, "12,350"),
        (-12345.6, "-12,350"),
        (1e12, "1e+12"),
        (math.inf, "inf"),
    ],
)
def test_a_number_is_shown_with_the_digits_that_matter(value: float, text: str) -> None:
    assert short(value) == text


@given(FINITE)
def test_every_number_is_short_and_true_to_four_digits(value: float) -> None:
    assert len(short(value)) <= 12
    assert math.isclose(float(short(value).replace(",", "")), value, rel_tol=1e-3, abs_tol=1e-300)


def test_a_count_has_all_its_digits() -> None:
    assert (in_full(12345678), in_full(1234.5)) == ("12,345,678", "1,234.5")


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (0.0001, "less than 0.1 %"),
        (0.213, "21.3 %"),
        (0.5, "50 %"),
        (0.9999, "more than 99.9 %"),
        (1.0, "100 %"),
        (1.234, "123.4 %"),
    ],
)
def test_a_share_is_not_rounded_to_nothing_or_to_all(share: float, text: str) -> None:
    assert percent(share) == text
