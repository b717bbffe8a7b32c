"""Every rule reports exactly what its bad examples say, and no rule objects to any good example."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ds_accum.lint.rules as rules
from ds_accum.config.document import Document, read_text
from ds_accum.lint import Severity, lint_document, lint_text
from ds_accum.lint.diagnostic import Diagnostic, Proof
from ds_accum.lint.fixer import fix_document
from ds_accum.lint.rule import Example, Rule
from ds_accum.lint.rules import RULES
from ds_accum.lint.wording import dotted

BAD = [pytest.param(rule, example, id=f"{rule.code}-bad-{n}") for rule in RULES for n, example in enumerate(rule.bad)]
PROPER_NAMES = ("ZeRO", "ZeRO-2", "Muon", "DeepSpeed")

GOOD = [
    pytest.param(rule, example, id=f"{rule.code}-good-{n}") for rule in RULES for n, example in enumerate(rule.good)
]


@pytest.mark.parametrize(("rule", "example"), BAD)
def test_a_bad_example_gets_exactly_the_findings_it_names(rule: Rule, example: Example) -> None:
    found = lint_text(example.config, launches=[example.launch], origin=example.origin)
    assert [(dotted(item.path), item.message) for item in found if item.code == rule.code] == [
        (report.at, report.message) for report in example.reports
    ]
    assert example.reports, "a bad example names what is wrong with it"


def fixed_by(rule: Rule, example: Example) -> str | None:
    """The example after all that the rule can fix by itself, None if it can't fix anything."""

    def findings(document: Document) -> list[Diagnostic]:
        found = lint_document(document, launches=[example.launch], origin=example.origin)
        return [item for item in found if item.code == rule.code]

    fixed = fix_document(read_text(example.config), findings, unsafe=True)
    assert len(fixed.diagnostics) <= len(example.reports) - fixed.count, "each fix mends its own finding"
    return fixed.document.text if fixed.count else None


@pytest.mark.parametrize(("rule", "example"), BAD)
def test_a_bad_example_is_fixed_as_it_says(rule: Rule, example: Example) -> None:
    assert fixed_by(rule, example) == example.fixed


@pytest.mark.parametrize(("rule", "example"), GOOD)
def test_a_good_example_is_left_alone(rule: Rule, example: Example) -> None:
    assert fixed_by(rule, example) is example.fixed is None


@pytest.mark.parametrize(("rule", "example"), BAD)
def test_the_title_of_a_fix_is_one_short_imperative(rule: Rule, example: Example) -> None:
    for item in lint_text(example.config, launches=[example.launch], origin=example.origin):
        if item.code == rule.code and item.fix is not None:
            assert item.fix.title[0].islower() and not item.fix.title.endswith(".")
            assert len(item.fix.title) <= 80


@pytest.mark.parametrize(("rule", "example"), GOOD)
def test_a_good_example_is_clean_under_every_rule(rule: Rule, example: Example) -> None:
    found = lint_text(example.config, launches=[example.launch], origin=example.origin)
    assert [(item.code, item.message) for item in found if item.severity is not Severity.INFO] == []


def test_codes_are_unique_and_in_order() -> None:
    codes = [rule.code for rule in RULES]
    assert codes == sorted(set(codes))
    assert all(re.fullmatch(r"DSA\d{3}", code) for code in codes)


def test_every_file_in_the_folder_is_a_rule_of_its_own_name() -> None:
    folder = Path(rules.__file__).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert files == {rule.name.replace("-", "_") for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_explains_itself(rule: Rule) -> None:
    assert rule.rationale and rule.rationale.count("\n") >= 3, "the module docstring says why it matters"
    assert rule.bad and rule.good
    assert rule.summary[0].islower() or rule.summary.split()[0] in PROPER_NAMES
    assert not rule.summary.endswith(".")
    if rule.proof is Proof.READ:
        assert rule.severity is not Severity.ERROR, "what was only read in the source is never above a warning"


@pytest.mark.parametrize(("rule", "example"), BAD)
def test_a_message_is_one_sentence_of_fact_with_a_remedy(rule: Rule, example: Example) -> None:
    for item in lint_text(example.config, launches=[example.launch], origin=example.origin):
        assert not item.message.endswith(".") and "\n" not in item.message and "please" not in item.message.lower()
        assert item.help is None or not item.help.endswith(".")
