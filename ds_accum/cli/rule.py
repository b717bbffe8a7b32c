"""`ds-accum rule`: what a finding means, with the examples that test the rule."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ds_accum.cli.messages import COLORS, terminal_for
from ds_accum.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ds_accum.lint.rule import Rule

__all__ = ["FORMATS", "rule"]

FORMATS = ("text", "json")


@click.command(short_help="Explain what a finding means, with examples.")
@click.argument("codes", metavar="CODE...", nargs=-1)
@click.option("--all", "show_all", is_flag=True, help="Every rule, in the order of the codes.")
@click.option("--format", "format_name", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("--color", type=click.Choice(COLORS), default="auto", show_default=True)
def rule(codes: tuple[str, ...], show_all: bool, format_name: str, color: str) -> None:
    """Explain what a finding means, with examples.

    A CODE is a rule's code or its name, in upper or lower case.

    \b
      ds-accum rule DSA101
      ds-accum rule batch-size-mismatch
    """
    if show_all == bool(codes):
        raise click.UsageError("Name one or more rules, or use --all.")
    from ds_accum.lint.rules import RULES

    rules = RULES if show_all else _named(codes)
    if format_name == "json":
        click.echo(_as_json(rules))
        return
    from ds_accum.lint.explanation import explain

    terminal = terminal_for(sys.stdout, color)
    pages = ("\n".join(explain(rule, terminal)) for rule in rules)
    separator = f"\n\n{terminal.paint('-' * terminal.width, 'dim')}\n\n"
    click.echo(separator.join(pages), color=terminal.color)


def _named(codes: Iterable[str]) -> list[Rule]:
    """The rules of these codes and names, each once."""
    from ds_accum.lint.rules import RULES

    by_name = {name.lower(): rule for rule in RULES for name in (rule.code, rule.name)}
    found: dict[str, Rule] = {}
    for code in codes:
        rule = by_name.get(code.lower())
        if rule is None:
            raise _unknown(code, by_name)
        found.setdefault(rule.code, rule)
    return list(found.values())


def _unknown(code: str, known: Iterable[str]) -> UsageError:
    from difflib import get_close_matches  # a slow import, needed only here

    close = [name.upper() if name.startswith("dsa") else name for name in get_close_matches(code.lower(), known, n=3)]
    remedy = f"did you mean {' or '.join(close)}?" if close else "`ds-accum rule --all` lists every rule"
    return UsageError(f"there is no rule {code}", remedy=remedy)


def _as_json(rules: Iterable[Rule]) -> str:
    import json

    from ds_accum.lint.explanation import rule_values

    return json.dumps({"version": 1, "rules": [rule_values(rule) for rule in rules]}, indent=2)
