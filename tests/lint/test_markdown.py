"""The pages of the rules are what the rules say, and every link among them leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ds_accum.lint.markdown import INDEX, index_page, rule_page
from ds_accum.lint.rule import Rule
from ds_accum.lint.rules import RULES

COMMAND = "python -m ds_accum rule --all --format markdown --output-dir ds_accum/lint/rules/pages"


@pytest.fixture
def pages(repository: Path) -> Path:
    return repository / "ds_accum" / "lint" / "rules" / "pages"


def test_the_pages_are_those_that_the_rules_make_now(pages: Path) -> None:
    expected = {f"{rule.code}.md": rule_page(rule) for rule in RULES} | {INDEX: index_page(RULES)}
    found = {path.name: path.read_text("utf-8") for path in pages.iterdir()}
    stale = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    assert not stale, f"{', '.join(stale)}: rewrite the pages with `{COMMAND}`, and delete those of no rule"


def test_the_index_names_every_rule_once(pages: Path) -> None:
    linked = re.findall(r"\]\((DSA\d{3})\.md\)", (pages / INDEX).read_text("utf-8"))
    assert linked == [rule.code for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_page_closes_every_fence_and_shows_every_example(rule: Rule) -> None:
    page = rule_page(rule)
    assert len(re.findall(r"^````?\w*$", page, flags=re.MULTILINE)) % 2 == 0
    assert page.count("\n`ds-accum lint") == len(rule.bad) + len(rule.good)
    assert page.count(f"[{rule.code}] {rule.name}\n") >= len(rule.bad)


def test_a_page_says_why_bad_and_good() -> None:
    headings = re.findall(r"^## (.*)$", rule_page(RULES.by_code["DSA101"]), flags=re.MULTILINE)
    assert headings == ["Why", "Bad", "Good", "Read more"]
