"""The pages of the rules in Markdown, one a rule and an index, from the same objects that check.

python -m ds_accum rule --all --format markdown --output-dir ds_accum/lint/rules/pages
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ds_accum.config.wording import printable
from ds_accum.lint.explanation import NOTICED, PROVEN, findings_of_example, launch_options
from ds_accum.lint.reporters.terminal import Terminal
from ds_accum.lint.rule import Example, Rule

__all__ = ["INDEX", "index_page", "rule_page"]

INDEX = "README.md"

# The hundreds of the codes.
_SECTIONS = {
    "0": "File and syntax",
    "1": "Batch arithmetic",
    "2": "ZeRO stage and sharding",
    "3": "Precision and loss scale",
    "4": "Accumulation and clipping",
    "5": "Optimizer, scheduler and offload",
    "6": "Pipeline, sequence, expert and tensor parallel",
    "7": "Unknown, misplaced and removed keys",
    "8": "Launchers and frameworks",
    "9": "DeepSpeed releases with wrong results",
}

_FINDINGS = Terminal(width=100, color=False)


def rule_page(rule: Rule) -> str:
    """Why, bad, good, what mends it, when DeepSpeed notices, how it is proven, and what to read."""
    return "\n".join(_lines(rule)) + "\n"


def index_page(rules: Sequence[Rule]) -> str:
    """Every rule with a link to its page, by the hundreds of the codes."""
    lines = ["# Rules", "", "Made by `ds-accum rule --all --format markdown`; do not edit."]
    for digit, section in _SECTIONS.items():
        members = [rule for rule in rules if rule.code.removeprefix("DSA").startswith(digit)]
        if not members:
            continue
        lines += ["", f"## {section}", "", "| code | name | | DeepSpeed notices | |", "|---|---|---|---|---|"]
        lines += [
            f"| [{rule.code}]({rule.code}.md) | {rule.name} | {rule.severity.value} | {rule.when.value} |"
            f" {_in_a_cell(rule.summary)} |"
            for rule in members
        ]
    return "\n".join(lines) + "\n"


def _lines(rule: Rule) -> Iterator[str]:
    yield f"# {rule.code} {rule.name}"
    yield ""
    yield _as_a_sentence(rule.summary)
    yield ""
    yield f"- severity: {rule.severity.value}"
    yield f"- {rule.noticed_by} notices: {NOTICED[rule.when]}"
    yield f"- proof: {PROVEN[rule.proof]}"
    yield ""
    yield "## Why"
    yield ""
    yield from rule.rationale.strip().split("\n")
    for heading, examples in (("Bad", rule.bad), ("Good", rule.good)):
        yield ""
        yield f"## {heading}"
        for example in examples:
            yield ""
            yield f"`{' '.join(['ds-accum lint ds_config.json', *launch_options(example.launch)])}`"
            yield ""
            yield from _fenced("json", example.config.rstrip("\n").split("\n"))
            if heading == "Bad":
                yield from _what_is_said(rule, example)
    if rule.references:
        yield ""
        yield "## Read more"
        yield ""
        yield from (f"- {reference}" for reference in rule.references)


def _what_is_said(rule: Rule, example: Example) -> Iterator[str]:
    yield ""
    yield from _fenced("text", findings_of_example(rule, example, _FINDINGS))
    if example.fixed is not None:
        yield ""
        yield "Mended:"
        yield ""
        yield from _fenced("json", example.fixed.rstrip("\n").split("\n"))


def _fenced(language: str, lines: Iterable[str]) -> Iterator[str]:
    shown = [printable(line).rstrip() for line in lines]
    fence = "````" if any("```" in line for line in shown) else "```"
    yield f"{fence}{language}"
    yield from shown
    yield fence


def _as_a_sentence(summary: str) -> str:
    first = summary.partition(" ")[0]
    # The name of a setting keeps its case.
    return f"{summary if '_' in first else summary[:1].upper() + summary[1:]}."


def _in_a_cell(text: str) -> str:
    return text.replace("|", r"\|")
