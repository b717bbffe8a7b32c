"""Integers in a message: short, never failing, and refused where they are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_accum.batch.wording import require_integer, show, show_list, show_product, show_values
from ds_accum.errors import BatchError, UsageError


@given(st.integers(min_value=-(2**128) + 1, max_value=2**128 - 1))
def test_a_number_that_can_be_read_is_shown_digit_by_digit(value: int) -> None:
    assert show(value) == str(value)


@pytest.mark.parametrize("exponent", [39, 100, 4300, 5000, 100_000])
def test_a_number_longer_than_python_prints_is_shown_by_its_magnitude(exponent: int) -> None:
    assert show(10**exponent) == f"about 10^{exponent}"
    assert show(-(10**exponent)) == f"about -10^{exponent}"


def test_a_product_names_its_factors() -> None:
    assert show_product([("micro batch", 8), ("data parallel", 4)]) == "micro batch 8 x data parallel 4 = 32"


def test_a_single_factor_is_not_multiplied_out() -> None:
    assert show_product([("data parallel", 4)]) == "data parallel 4"


@pytest.mark.parametrize(
    ("items", "said"),
    [([], ""), (["8"], "8"), (["8", "16"], "8 or 16"), (["8", "16", "32"], "8, 16 or 32")],
)
def test_a_list_ends_in_or(items: list[str], said: str) -> None:
    assert show_list(items) == said


def test_values_that_read_alike_are_said_once() -> None:
    assert show_values([10**50, 10**50 + 1]) == "about 10^50"
    assert show_values([8, 16, 32], ", ") == "8, 16, 32"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (True, "True"),
        (False, "False"),
        (None, "None"),
        (2.0, "2.0"),
        (float("nan"), "nan"),
        ("8", "'8'"),
        ("auto", "'auto'"),
        ("x" * 21, "a str"),
        ([8], "a list"),
        ({"a": 8}, "a dict"),
    ],
)
def test_what_is_no_integer_is_refused_and_shown(value: object, said: str) -> None:
    with pytest.raises(BatchError) as caught:
        require_integer(value, name="micro batch", error=BatchError)
    assert str(caught.value) == f"micro batch must be an integer, not {said}"
    assert caught.value.remedy == "give micro batch as a whole number, without quotes or a fraction"


@pytest.mark.parametrize(("value", "said"), [(0, "0"), (-1, "-1"), (-(10**100), "about -10^100")])
def test_what_is_too_small_is_refused_and_shown(value: int, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        require_integer(value, name="sequence length", error=UsageError)
    assert str(caught.value) == f"sequence length must be at least 1, not {said}"
    assert caught.value.remedy == "set sequence length to 1 or more"


@given(st.integers(min_value=1))
def test_every_positive_integer_passes(value: int) -> None:
    require_integer(value, name="world", error=BatchError)


def test_the_minimum_itself_passes() -> None:
    require_integer(0, name="number of samples", minimum=0, error=UsageError)
