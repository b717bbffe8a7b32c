"""Numbers with a unit: powers of ten and of two, exact or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_accum.errors import UsageError
from ds_accum.plan.units import LARGEST, parse_bytes, parse_count


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1536", 1536),
        ("4M", 4_000_000),
        ("4Mi", 4_194_304),
        ("4mi", 4_194_304),
        ("1,536", 1536),
        ("4_194_304", 4_194_304),
        ("2.5M", 2_500_000),
        ("0.5Ki", 512),
        ("1.5 G", 1_500_000_000),
        ("3B", 3_000_000_000),
        ("1T", 10**12),
    ],
)
def test_a_count_is_read_exactly(text: str, value: int) -> None:
    assert parse_count(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("80GB", 80 * 10**9), ("80 gib", 80 * 2**30), ("512", 512), ("1.5TB", 15 * 10**11), ("1kB", 1000), ("8b", 8)],
)
def test_bytes_are_read_exactly(text: str, value: int) -> None:
    assert parse_bytes(text) == value


@given(value=st.integers(min_value=1, max_value=LARGEST))
def test_every_number_within_the_limit_is_read_back(value: int) -> None:
    assert parse_count(str(value)) == value
    assert parse_count(f"{value:,}") == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0", "must be at least 1, not 0"),
        ("0.0001", "is not whole"),
        ("1.5", "is not whole"),
        ("-4", "can't be '-4'"),
        ("4MM", "can't be '4MM'"),
        ("nan", "can't be 'nan'"),
        ("inf", "can't be 'inf'"),
        ("1e6", "can't be '1e6'"),
        ("", "can't be ''"),
        ("٤", "can't be"),
        ("2T" + "0" * 99, "can't be"),
        ("9999999P", "must be at most 10\\^18"),
    ],
)
def test_everything_else_is_refused_with_how_to_write_it(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        parse_count(text, name="--tokens-per-step")
    assert str(caught.value).startswith("--tokens-per-step ")
    assert caught.value.remedy == "write it like 1536, 4M (4,000,000) or 4Mi (4,194,304)"


def test_a_count_has_no_unit_of_bytes_and_bytes_have_no_bare_prefix() -> None:
    with pytest.raises(UsageError, match="can't be '80GB'"):
        parse_count("80GB")
    with pytest.raises(UsageError, match="can't be '80G'"):
        parse_bytes("80G")
