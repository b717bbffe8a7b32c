from __future__ import annotations

import math

import pytest

from ds_accum.reporting.numbers import (
    bytes_text,
    count_text,
    error_text,
    listed,
    loss_text,
    seconds_text,
    times_text,
)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (4, "4 B"),
        (999, "999 B"),
        (999.6, "1 kB"),
        (34_752, "34.8 kB"),
        (1_500_000_000, "1.5 GB"),
        (999_999, "1 MB"),
        (10**15, "1 PB"),
        (5 * 10**18, "5,000 PB"),
        (math.inf, "inf"),
    ],
)
def test_bytes_have_three_digits(number: float, text: str) -> None:
    assert bytes_text(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (1.5, "1.5 s"),
        (100_000, "100,000 s"),
        (0.0123, "12.3 ms"),
        (0.9999, "1 s"),
        (4e-5, "40 us"),
        (1e-9, "1 ns"),
        (1e-15, "1.00e-15 s"),
        (math.nan, "nan s"),
    ],
)
def test_times_have_the_unit_that_fits(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.667, "0.67"), (1, "1"), (1.04, "1.04"), (2.86, "2.9"), (15.7, "16"), (1e6, "1,000,000"), (math.inf, "inf")],
)
def test_a_ratio_has_two_digits_that_matter(ratio: float, text: str) -> None:
    assert times_text(ratio) == text


def test_errors_counts_and_losses() -> None:
    assert [error_text(value) for value in (0.0, 4.12e-7, math.inf, math.nan)] == ["0", "4.1e-07", "inf", "nan"]
    assert [count_text(value) for value in (12_345.0, 2.5, math.inf)] == ["12,345", "2.50", "inf"]
    assert loss_text(3.4935123) == "3.4935"


def test_a_list_of_words_reads_as_one_says_it() -> None:
    assert listed([]) == ""
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"
    assert listed(["a", "b", "c", "d"]) == "a, b, c and d"
    assert listed(list("abcdefg")) == "a, b, c and 4 more"
