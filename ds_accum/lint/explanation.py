"""What a rule means, for people and for programs, from the same object that checks: `ds-accum rule DSA101`.

The findings under a bad example are not written down, they are what the linter says about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from ds_accum.config.checkpoint import Checkpoint
from ds_accum.config.document import Syntax, read_text
from ds_accum.config.launch import Launch
from ds_accum.config.training_arguments import TrainingArguments
from ds_accum.config.wording import printable
from ds_accum.lint.diagnostic import Proof, When
from ds_accum.lint.in_force import LAUNCH_FIELDS
from ds_accum.lint.linter import lint_document
from ds_accum.lint.reporters.full import diagnostic_lines
from ds_accum.lint.reporters.terminal import Terminal, width_of, wrapped
from ds_accum.lint.rule import Example, Rule
from ds_accum.lint.rules import RULES

__all__ = ["NOTICED", "PROVEN", "explain", "findings_of_example", "launch_options", "rule_values"]

NOTICED = {
    When.LOAD: "when it loads the config",
    When.START: "at start, once every rank is up",
    When.FIRST_STEP: "at the first step",
    When.NEVER: "never",
}
PROVEN = {
    Proof.RUN: "the tests give the bad examples to a real DeepSpeed, which shows it, and the good ones, which do not",
    Proof.OTHER_VERSION: "shown by running another release of DeepSpeed",
    Proof.OTHER_READER: "shown by running the other reader of the file",
    Proof.READ: "only read in the source, never run",
}

# Launch field -> the option of `ds-accum lint` that sets it: that of its setting, but for those that are no settings.
_OPTIONS = {
    **{field: f"--{setting}" for setting, field in LAUNCH_FIELDS.items()},
    "deepspeed_version": "--deepspeed-version",
    "sequence_length": "--seq-len",
    "hf_arguments": "--hf-arg",
    "checkpoint": "--resume",
}


def explain(rule: Rule, terminal: Terminal) -> Iterator[str]:
    """The lines of one rule's page."""
    code = terminal.paint_as(rule.severity, f"{rule.severity.value}[{rule.code}]")
    yield f"{code} {terminal.paint(rule.name, 'bold')}"
    yield from _indented(wrapped(rule.summary, terminal.width - 2))
    yield ""
    yield from _field(f"{rule.noticed_by} notices", NOTICED[rule.when], terminal)
    yield from _field("proof", PROVEN[rule.proof], terminal)
    yield ""
    yield terminal.paint("why", "bold")
    yield from _indented(_rationale(rule, terminal.width - 2))
    for kind, examples in (("bad", rule.bad), ("good", rule.good)):
        for number, example in enumerate(examples, start=1):
            yield ""
            of = f", {number} of {len(examples)}" if len(examples) > 1 else ""
            yield terminal.paint(kind + of, "bold")
            command = " ".join(["$ ds-accum lint ds_config.json", *launch_options(example.launch)])
            yield from _indented(wrapped(command, terminal.width - 2))
            yield from _indented(_config(example.config, terminal))
            if kind == "bad":
                yield ""
                yield from _indented(findings_of_example(rule, example, terminal))
            if example.fixed is not None:
                yield ""
                yield from _indented(iter(["once fixed:"]))
                yield from _indented(_config(example.fixed, terminal))
    if rule.references:
        yield ""
        yield terminal.paint("read more", "bold")
        yield from _indented(iter(rule.references))


def rule_values(rule: Rule) -> dict[str, Any]:
    """One rule as plain values; the fields only ever grow."""
    return {
        "code": rule.code,
        "name": rule.name,
        "severity": rule.severity.value,
        "when": rule.when.value,
        "proof": rule.proof.value,
        "summary": rule.summary,
        "rationale": rule.rationale.strip(),
        "bad": [_example_values(example) for example in rule.bad],
        "good": [_example_values(example) for example in rule.good],
        "references": list(rule.references),
    }


def _example_values(example: Example) -> dict[str, Any]:
    return {
        "config": example.config,
        "options": list(launch_options(example.launch)),
        "findings": [{"at": report.at, "message": report.message} for report in example.reports],
        "fixed": example.fixed,
    }


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" if line else "" for line in lines)


def _field(name: str, text: str, terminal: Terminal) -> Iterator[str]:
    label = f"{name}: "
    first, *rest = wrapped(text, terminal.width - 2 - len(label))
    yield f"  {terminal.paint(label.rstrip(), 'bold')} {first}"
    yield from (f"  {' ' * len(label)}{line}" for line in rest)


def _rationale(rule: Rule, width: int) -> Iterator[str]:
    """The paragraphs of the rule's docstring, wrapped anew; an indented one stands as it is."""
    first, *rest = rule.rationale.strip().split("\n\n")
    says_more = first.rstrip(".").lower() != rule.summary.lower()
    for number, paragraph in enumerate([first, *rest] if says_more or not rest else rest):
        if number:
            yield ""
        if paragraph.startswith(" "):
            yield from paragraph.split("\n")
        else:
            yield from wrapped(" ".join(paragraph.split("\n")), width)


def _config(text: str, terminal: Terminal) -> Iterator[str]:
    """The numbered lines of an example, cut where they are too long."""
    lines = text.rstrip("\n").split("\n")
    margin = len(str(len(lines)))
    for number, line in enumerate(lines, start=1):
        shown = printable(line)
        room = terminal.width - margin - 7
        if width_of(shown) > room:
            shown = f"{shown[: room - 3]}..."
        yield f"{terminal.paint(f'{number:>{margin}} |', 'dim')} {shown}".rstrip()


def findings_of_example(rule: Rule, example: Example, terminal: Terminal) -> Iterator[str]:
    """What the linter says about an example, as far as it is this rule's."""
    narrower = Terminal(width=terminal.width - 2, color=terminal.color)
    document = read_text(example.config, filename="ds_config.json", syntax=Syntax.HJSON)
    # A rule about what others have found needs them.
    rules = RULES if rule.needs == "review" else (rule,)
    found = lint_document(document, launches=[example.launch], rules=rules, origin=example.origin)
    for number, diagnostic in enumerate(item for item in found if item.code == rule.code):
        if number:
            yield ""
        yield from diagnostic_lines(diagnostic, document, (), narrower)


def launch_options(launch: Launch) -> Iterator[str]:
    """The options of the command line that describe a launch."""
    for field in fields(Launch):
        value = getattr(launch, field.name)
        if value == field.default:
            continue
        if isinstance(value, TrainingArguments):
            for name, given in value.given.items():
                yield f"{_OPTIONS[field.name]} {name}={str(given).lower() if isinstance(given, bool) else given}"
            continue
        if isinstance(value, Checkpoint):
            value = value.folder
        if isinstance(value, bool):
            value = "yes" if value else "no"
        elif isinstance(value, tuple):
            value = ".".join(map(str, value))
        yield f"{_OPTIONS[field.name]} {value}"
