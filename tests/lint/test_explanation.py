"""The page of a rule: everything that the rule says about itself, and the findings that its examples really get."""

from __future__ import annotations

from dataclasses import fields

import pytest

from ds_accum.config.launch import Launch
from ds_accum.lint import explanation
from ds_accum.lint.explanation import explain, rule_values
from ds_accum.lint.reporters.terminal import Terminal, width_of
from ds_accum.lint.rule import Rule
from ds_accum.lint.rules import RULES

TERMINAL = Terminal()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_page_shows_every_example_with_its_findings(rule: Rule) -> None:
    page = "\n".join(explain(rule, TERMINAL))
    assert page.startswith(f"{rule.severity.value}[{rule.code}] {rule.name}\n  ")
    assert page.count("\n  $ ds-accum lint ds_config.json") == len(rule.bad) + len(rule.good)
    findings = sum(len(example.reports) for example in rule.bad)
    assert page.count(f"[{rule.code}] {rule.name}\n") == 1 + findings
    for reference in rule.references:
        assert f"\n  {reference}" in page


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_page_can_be_read_at_80_columns(rule: Rule) -> None:
    # Quoted blocks and links stand as they are.
    verbatim = {line.strip() for line in [*rule.rationale.splitlines(), *rule.references]}
    wide = [line for line in explain(rule, TERMINAL) if width_of(line) > TERMINAL.width]
    assert [line for line in wide if line.strip() not in verbatim] == []


def test_a_sentence_that_the_summary_repeats_is_said_once() -> None:
    rule = RULES.by_code["DSA003"]
    page = "\n".join(explain(rule, TERMINAL))
    assert page.lower().count(rule.summary.lower()) == 1


def test_the_launch_of_an_example_is_shown_as_options() -> None:
    launch = Launch(world_size=8, tensor_parallel_size=2, client_optimizer=True, deepspeed_version=(0, 18, 3))
    assert list(explanation.launch_options(launch)) == [
        "--world-size 8",
        "--tp 2",
        "--deepspeed-version 0.18.3",
        "--client-optimizer yes",
    ]


def test_every_field_of_a_launch_has_its_option() -> None:
    assert set(explanation._OPTIONS) == {field.name for field in fields(Launch)}


def test_the_options_are_those_of_the_command() -> None:
    from ds_accum.cli.lint import lint

    assert set(explanation._OPTIONS.values()) <= {name for parameter in lint.params for name in parameter.opts}


def test_a_rule_as_values_has_the_examples_with_what_they_report() -> None:
    values = rule_values(RULES.by_code["DSA102"])
    assert values["bad"][0] == {
        "config": '{\n  "train_batch_size": 100,\n  "train_micro_batch_size_per_gpu": 3\n}\n',
        "options": ["--world-size 8"],
        "findings": [
            {
                "at": "train_batch_size",
                "message": "train_batch_size 100 (line 2) is no multiple of micro batch 3 (line 3) x data parallel 8"
                " (the world size) = 24, remainder 4",
            }
        ],
        "fixed": None,
    }
