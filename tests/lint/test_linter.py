"""From a text to diagnostics."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ds_accum.config.launch import Launch
from ds_accum.errors import LayoutError
from ds_accum.lint import Severity, lint_file
from ds_accum.lint import lint_text as lint_with_every_rule
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding
from ds_accum.lint.rules import RULES

MISMATCH = """{
  "train_batch_size": 256,
  "train_micro_batch_size_per_gpu": 8,
  "gradient_accumulation_steps": 1
}
"""


# What is only worth knowing is not what these texts are about.
SERIOUS = tuple(rule for rule in RULES if rule.severity is not Severity.INFO)
lint_text = functools.partial(lint_with_every_rule, rules=SERIOUS)


def codes(text: str, *worlds: int | None) -> list[str]:
    return [item.code for item in lint_text(text, launches=[Launch(world_size=world) for world in worlds])]


def test_a_finding_has_the_place_of_the_value_that_it_is_about() -> None:
    (found,) = lint_text(MISMATCH, filename="ds.json", launches=[Launch(world_size=8)])
    assert (found.code, found.name, found.filename) == ("DSA101", "batch-size-mismatch", "ds.json")
    assert (found.start.line, found.start.column, found.end.column) == (2, 23, 26)
    assert MISMATCH[found.start.offset : found.end.offset] == "256"


def test_an_unknown_key_is_pointed_at_by_its_key() -> None:
    text = '{"train_batch_size": 8, "zero_optimization": {"stag": 2}}'
    (found,) = lint_text(text, launches=[Launch(world_size=1)])
    assert text[found.start.offset : found.end.offset] == '"stag"'


def test_without_a_world_size_a_product_that_some_world_satisfies_is_no_error() -> None:
    assert codes(MISMATCH, None) == []


def test_several_worlds_give_one_finding_with_the_worlds_it_holds_for() -> None:
    (found,) = lint_text(MISMATCH, launches=[Launch(world_size=world) for world in (8, 16, 32)])
    assert found.worlds == (8, 16)
    assert "data parallel 8 (the world size) = 64" in found.message


def test_a_finding_that_holds_for_all_worlds_names_none() -> None:
    (found,) = lint_text('{"train_batch_size": "8"}', launches=[Launch(world_size=world) for world in (1, 2)])
    assert found.worlds == ()


def test_findings_come_in_the_order_of_the_file() -> None:
    text = '{"fp16": 1, "train_batch_size": "8", "zero_optimization": {"stage": 9}}'
    assert codes(text, 1) == ["DSA010", "DSA104", "DSA013"]


def test_the_rest_of_a_broken_file_is_still_checked() -> None:
    text = '{"train_batch_size": 8, "zero_optimization": {"stage": 9}, "fp16": {"enabled": true}'
    assert codes(text, 1) == ["DSA001", "DSA013"] or codes(text, 1) == ["DSA013", "DSA001"]


def crash(context: LintContext) -> Iterator[Finding]:
    raise RuntimeError("the reason")
    yield


def test_a_rule_that_fails_is_reported_with_its_code_and_the_others_still_run() -> None:
    failing = replace(RULES.by_code["DSA101"], check=crash)
    rules = [failing, *(rule for rule in SERIOUS if rule is not RULES.by_code["DSA101"])]
    found = lint_text('{"train_batch_size": "8"}', launches=[Launch(world_size=1)], rules=rules)
    assert [item.code for item in found] == ["DSA000", "DSA104"]
    assert found[0].message == "rule DSA101 (batch-size-mismatch) failed: RuntimeError: the reason"


def doubtful(context: LintContext) -> Iterator[Finding]:
    yield Finding(at=(), message="it may fail", depends_on="unless the script passes its own optimizer")


def test_what_depends_on_something_unknown_is_a_warning_that_says_on_what() -> None:
    rule = replace(RULES.by_code["DSA101"], check=doubtful)
    (found,) = lint_text('{"train_batch_size": 8}', rules=[rule])
    assert found.severity is Severity.WARNING
    assert found.message == "it may fail, unless the script passes its own optimizer"


def test_the_syntax_follows_the_files_extension(tmp_path: Path) -> None:
    text = "train_batch_size: 8\nzero_optimization:\n  stage: 9\n"
    (tmp_path / "ds.yaml").write_text(text, encoding="utf-8")
    (found,) = lint_file(tmp_path / "ds.yaml", launches=[Launch(world_size=1)], rules=SERIOUS)
    assert (found.code, found.start.line, found.start.column) == ("DSA013", 3, 10)
    assert [item.code for item in lint_text(text, filename="ds.yml", launches=[Launch(world_size=1)])] == ["DSA013"]


def test_a_file_that_cannot_be_read_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        lint_file(tmp_path / "none.json")


def test_a_launch_that_can_not_be_is_refused_before_any_rule_is_asked() -> None:
    with pytest.raises(LayoutError, match="world 12 is not a multiple of tensor 8"):
        lint_text(MISMATCH, launches=[Launch(world_size=12, tensor_parallel_size=8)])


def test_a_framework_told_by_the_file_counts_for_the_rules_about_the_text_too() -> None:
    twice = '{"train_batch_size": "auto", "bf16": {"enabled": false}, "bf16": {"enabled": true}}'
    (found,) = lint_text(twice)
    assert (found.code, found.severity) == ("DSA002", Severity.WARNING)
