"""Which rules are asked."""

from __future__ import annotations

import pytest

from ds_accum.errors import UsageError
from ds_accum.lint.rules import RULES
from ds_accum.lint.selection import Choice, closest_code, selected, validated


def codes(*layers: Choice) -> set[str]:
    return {rule.code for rule in selected(RULES, layers)}


EVERY = {rule.code for rule in RULES}
BATCH = {code for code in EVERY if code.startswith("DSA1")}


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([], EVERY),
        ([Choice()], EVERY),
        ([Choice(select=("ALL",))], EVERY),
        ([Choice(ignore=("ALL",))], set()),
        ([Choice(select=("DSA1",))], BATCH),
        ([Choice(ignore=("DSA1",))], EVERY - BATCH),
        ([Choice(select=("DSA1",), ignore=("DSA101",))], BATCH - {"DSA101"}),
        # The longer prefix wins, and of two equal ones the one that leaves out.
        ([Choice(select=("ALL", "DSA101"), ignore=("DSA1",))], EVERY - BATCH | {"DSA101"}),
        ([Choice(select=("DSA101",), ignore=("ALL",))], {"DSA101"}),
        ([Choice(select=("DSA101",), ignore=("DSA101",))], set()),
        # A later layer that selects starts anew, one that only ignores takes away.
        ([Choice(select=("DSA1",), ignore=("DSA101",)), Choice(select=("DSA1",))], BATCH),
        ([Choice(select=("DSA1",), ignore=("DSA101",)), Choice(ignore=("DSA102",))], BATCH - {"DSA101", "DSA102"}),
        ([Choice(ignore=("DSA1",)), Choice(select=("DSA101", "DSA2"))], {"DSA101"} | {c for c in EVERY if c[3] == "2"}),
    ],
)
def test_layers_choose(layers: list[Choice], expected: set[str]) -> None:
    assert codes(*layers) == expected


def test_the_rules_stay_in_their_order() -> None:
    rules = selected(RULES, [Choice(select=("DSA7", "DSA1"))])
    assert [rule.code for rule in rules] == sorted(rule.code for rule in rules)


def test_codes_are_understood_in_any_case() -> None:
    assert validated(["dsa101", "Dsa1", "all", "D"], RULES) == ("DSA101", "DSA1", "ALL", "D")


@pytest.mark.parametrize(
    ("word", "sentence", "remedy"),
    [
        ("DSA19999", "'DSA19999' is no code of a rule, and no code begins so", None),
        ("DSA1O1", "'DSA1O1' is no code of a rule", "did you mean DSA101?"),
        ("batch-size-mismatch", "'batch-size-mismatch' is no code", "did you mean DSA101?"),
        ("unknown_key", "'unknown_key' is no code", "did you mean DSA701?"),
        ("E501", "'E501' is no code", "`ds-accum rule DSA` lists every rule"),
        ("", "'' is no code", "`ds-accum rule DSA` lists every rule"),
        ("DSA000", "DSA000 is no rule: it says that one has failed", "leave the rule itself out"),
    ],
)
def test_what_is_no_code_is_refused_with_what_was_meant(word: str, sentence: str, remedy: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        validated([word], RULES)
    assert str(caught.value).startswith(sentence)
    assert remedy is None or remedy in str(caught.value.remedy)


def test_nothing_is_guessed_for_a_prefix_where_a_whole_code_is_wanted() -> None:
    assert closest_code("DSA10", RULES) is None
    assert closest_code("DSAA101", RULES) == "DSA101"
