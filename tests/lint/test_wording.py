"""How messages say things."""

from __future__ import annotations

from typing import Any

import pytest

from ds_accum.lint.wording import LONGEST_VALUE, dotted, one_of, shown, what


def test_a_path_is_dotted_with_its_indices_in_brackets() -> None:
    assert dotted(("optimizer", "params", "betas", 0)) == "optimizer.params.betas[0]"
    assert dotted(()) == ""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("5e8", 'the string "5e8"'),
        (True, "the boolean true"),
        (None, "null"),
        (2.5, "the number 2.5"),
        ([1], "the list [1]"),
        ({"a": 1}, 'the object {"a": 1}'),
    ],
)
def test_a_wrong_value_is_said_with_its_kind(value: Any, said: str) -> None:
    assert what(value) == said


def test_a_long_value_is_cut() -> None:
    assert len(shown("x" * 500)) == LONGEST_VALUE
    assert shown("x" * 500).endswith("...")


def test_an_integer_too_long_to_print_is_still_said() -> None:
    assert shown(10**5000) == "about 10^5000"


def test_choices_end_with_or() -> None:
    assert one_of(["fp16", "bf16", "fp32"]) == '"fp16", "bf16" or "fp32"'
    assert one_of([3]) == "3"
