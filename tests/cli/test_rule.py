"""`ds-accum rule`: the page of a rule, found by code or name."""

from __future__ import annotations

import json
from pathlib import Path
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
        ("DSA199", "`ds-accum rule DSA1` lists those that begin so"),
        ("DSA1011", "`ds-accum rule DSA10` lists those that begin so"),
        ("batch-size-mismtach", "did you mean batch-size-mismatch"),
        ("zzz", "`ds-accum rule DSA` lists every rule"),
    ],
)
def test_an_unknown_rule_is_an_error_that_names_close_ones(ds_accum: Any, name: str, remedy: str) -> None:
    finished = ds_accum("rule", name)
    assert (finished.code, finished.output) == (2, "")
    error, help_ = finished.errors.splitlines()
    assert error == f"error: there is no rule {name!r}"
    assert help_.startswith(f"help: {remedy}")


def test_the_first_characters_of_a_code_list_the_rules_that_begin_so(ds_accum: Any) -> None:
    finished = ds_accum("rule", "dsa10")
    assert (finished.code, finished.errors) == (0, "")
    assert finished.output.startswith("DSA101  error    batch-size-mismatch: ")
    listed = [line.split()[0] for line in finished.output.splitlines() if not line.startswith(" ")]
    assert listed == [rule.code for rule in RULES if rule.code.startswith("DSA10")]
    assert max(map(len, finished.output.splitlines())) <= 80
    assert ds_accum("rule", "DSA").output.count("\nDSA") == len(RULES) - 1
    pages = json.loads(ds_accum("rule", "DSA10", "--format", "json").output)["rules"]
    assert [page["code"] for page in pages] == listed


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


# ------------------------------------------------------------------------------------------------------------ Markdown


def test_markdown_is_the_page_of_the_rule(ds_accum: Any) -> None:
    from ds_accum.lint.markdown import rule_page
    from ds_accum.lint.rules import RULES

    finished = ds_accum("rule", "DSA101", "--format", "markdown")
    assert (finished.code, finished.output) == (0, rule_page(RULES.by_code["DSA101"]))


def test_all_pages_and_an_index_are_written_to_a_folder(ds_accum: Any, folder: Path) -> None:
    finished = ds_accum("rule", "--all", "--format", "markdown", "--output-dir", "rules/pages")
    assert (finished.code, finished.output, finished.errors) == (0, "", "")
    written = {path.name for path in (folder / "rules" / "pages").iterdir()}
    assert written == {"README.md", *(f"{rule.code}.md" for rule in RULES)}


def test_a_folder_for_another_format_is_an_error(ds_accum: Any) -> None:
    finished = ds_accum("rule", "--all", "--output-dir", "rules")
    assert finished.code == 2
    assert "--output-dir is for --format markdown" in finished.errors
