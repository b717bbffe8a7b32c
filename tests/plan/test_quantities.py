"""Numbers as people write them, exact or refused."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_accum.errors import UsageError
from ds_accum.plan.quantities import LARGEST_QUANTITY, read_bytes, read_quantity, read_ratio


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7B", 7 * 10**9),
        ("7e9", 7 * 10**9),
        ("7000000000", 7 * 10**9),
        ("7_000_000_000", 7 * 10**9),
        ("3,145,728", 3_145_728),
        ("0.5k", 500),
        ("124m", 124_000_000),
        ("1.5T", 15 * 10**11),
        (".5M", 500_000),
        ("2G", 2 * 10**9),
        ("1.5 G", 15 * 10**8),
        (" 12 ", 12),
    ],
)
def test_units_are_powers_of_a_thousand(text: str, number: int) -> None:
    assert read_quantity(text, name="parameters") == number


@pytest.mark.parametrize(("text", "number"), [("4Mi", 4_194_304), ("4mi", 4_194_304), ("0.5Ki", 512), ("1Ti", 2**40)])
def test_units_with_an_i_are_powers_of_1024(text: str, number: int) -> None:
    assert read_quantity(text, name="tokens") == number


@pytest.mark.parametrize(
    ("text", "number"),
    [("80GB", 80 * 10**9), ("80 gib", 80 * 2**30), ("512", 512), ("1.5TB", 15 * 10**11), ("1kB", 1000), ("8b", 8)],
)
def test_bytes_are_read_exactly(text: str, number: int) -> None:
    assert read_bytes(text, name="--gpu-memory") == number


@pytest.mark.parametrize("text", ["80G", "80GBB", "GB"])
def test_bytes_have_the_unit_of_bytes_or_none(text: str) -> None:
    with pytest.raises(UsageError, match=f"--gpu-memory '{text}' is no number"):
        read_bytes(text, name="--gpu-memory")


def test_half_a_byte_is_refused() -> None:
    with pytest.raises(UsageError, match="--gpu-memory '0.5B' is not a whole number"):
        read_bytes("0.5B", name="--gpu-memory")


@given(st.integers(1, LARGEST_QUANTITY))
def test_every_digit_is_kept(number: int) -> None:
    assert read_quantity(str(number), name="tokens") == number
    assert read_quantity(f"{number:,}", name="tokens") == number


@pytest.mark.parametrize(
    "text", ["", "7X", "nan", "inf", "-5", "7BB", "1e", "0x10", "٣", "7  B", "80GB", "1e9999", "7e-3", "B", "1" * 100]
)
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="parameters .* is no number") as caught:
        read_quantity(text, name="parameters")
    assert caught.value.remedy is not None
    assert len(str(caught.value)) < 80


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "must be at least 1"),
        ("0.0", "must be at least 1"),
        ("1.5", "not a whole number"),
        ("0.0001k", "not a whole number"),
        ("1e19", "beyond 10"),
    ],
)
def test_a_number_that_counts_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_quantity(text, name="samples")


def test_a_ratio_is_the_decimal_that_is_written() -> None:
    assert read_ratio("0.03", name="ratio") == Fraction(3, 100)
    assert read_ratio("1e-3", name="ratio") == Fraction(1, 1000)
    assert read_ratio(".5", name="ratio") == Fraction(1, 2)


@pytest.mark.parametrize("text", ["nan", "-0.1", "1/2", "", "5%", "1e999", "inf"])
def test_what_is_no_ratio_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no number above 0"):
        read_ratio(text, name="ratio")


@pytest.mark.parametrize(("text", "most"), [("0", None), ("0.0", 1), ("1.01", 1)])
def test_a_ratio_is_within_its_bounds(text: str, most: int | None) -> None:
    with pytest.raises(UsageError, match="must be more than 0"):
        read_ratio(text, name="ratio", most=most)
