"""`ds-accum rule`: the page of a rule, found by code or name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ds_accum.lint.rules import RULES


@pytest.mark.parametrize("name", ["DSA101", "dsa101", "batch-size-mismatch", "Batch-Size-Mismatch"])
def test_a_rule_is_found_by_code_and_by_name_in_any_case(ds_accum: Any, name: str) -> None:
    finished = ds_accum("rule", name)
    assert (finished.code, finished.errors) == (0, "")
    assert finished.output.startswith("error[DSA101] batch-size-mismatch\n")


def test_a_rule_named_twice_is_explained_once(ds_accum: Any) -> None:
    assert ds_accum("rule", "DSA101", "batch-size-mismatch").output == ds_accum("rule", "DSA101").output


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("DSA11", "did you mean DSA"),
        ("batch-size-mismtach", "did you mean batch-size-mismatch"),
        ("zzz", "`ds-accum rule --all` lists every rule"),
    ],
)
def test_an_unknown_rule_is_an_error_that_names_close_ones(ds_accum: Any, name: str, remedy: str) -> None:
    finished = ds_accum("rule", name)
    assert (finished.code, finished.output) == (2, "")
    error, help_ = finished.errors.splitlines()
    assert error == f"error: there is no rule {name}"
    assert help_.startswith(f"help: {remedy}")


@pytest.mark.parametrize("arguments", [[], ["--all", "DSA101"]])
def test_either_names_or_all_are_given(ds_accum: Any, arguments: list[str]) -> None:
    finished = ds_accum("rule", *arguments)
    assert finished.code == 2
    assert "name one or more rules, or use --all" in finished.errors


def test_all_explains_every_rule_in_the_order_of_the_codes(ds_accum: Any) -> None:
    output = ds_accum("rule", "--all").output
    places = [output.index(f"[{rule.code}] {rule.name}\n") for rule in RULES]
    assert places == sorted(places)


def test_json_has_every_field_of_every_rule(ds_accum: Any) -> None:
    report = json.loads(ds_accum("rule", "--all", "--format", "json").output)
    assert report["version"] == 1
    assert [rule["code"] for rule in report["rules"]] == [rule.code for rule in RULES]
    for rule in report["rules"]:
        assert set(rule) == {
            *("code", "name", "severity", "when", "proof", "summary", "rationale", "bad", "good", "references")
        }
        assert rule["bad"][0]["findings"]
