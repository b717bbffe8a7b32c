"""`ds-accum rule`: what a finding means, with the examples that test the rule."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ds_accum.cli.messages import COLORS, terminal_for
from ds_accum.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ds_accum.lint.reporters import Terminal
    from ds_accum.lint.rule import Rule

__all__ = ["FORMATS", "rule"]

FORMATS = ("text", "markdown", "json")


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    """The codes and names that begin like this, for the shell."""
    return [word for word in _words() if word.lower().startswith(incomplete.lower())]


def _words() -> list[str]:
    """All codes and names."""
    from ds_accum.lint.rules import RULES

    return [word for rule in RULES for word in (rule.code, rule.name)]


@click.command(short_help="Explain what a finding means, with examples.")
@click.argument("codes", metavar="CODE...", nargs=-1, shell_complete=_complete)
@click.option("--all", "show_all", is_flag=True, help="Every rule, in the order of the codes.")
@click.option("--format", "format_name", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option(
    "--output-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write a Markdown page for each rule there; with --all, an index too.",
)
@click.option("--color", type=click.Choice(COLORS), default="auto", show_default=True)
def rule(codes: tuple[str, ...], show_all: bool, format_name: str, output_dir: Path | None, color: str) -> None:
    """Explain what a finding means, with examples.

    A CODE is a rule's code or its name, in upper or lower case. The first characters of a code list the rules that
    begin so.

    \b
      ds-accum rule DSA
      ds-accum rule DSA101
      ds-accum rule batch-size-mismatch
      ds-accum rule --all --format markdown --output-dir rules
    """
    if show_all == bool(codes):
        raise click.UsageError("Name one or more rules, or use --all.")
    if output_dir is not None and format_name != "markdown":
        raise click.UsageError("--output-dir is for --format markdown.")
    from ds_accum.lint.rules import RULES

    rules, is_list = (RULES, False) if show_all else _named(codes)
    if format_name == "json":
        click.echo(_as_json(rules))
        return
    if format_name == "markdown":
        _write_markdown(rules, output_dir, with_index=show_all)
        return
    terminal = terminal_for(sys.stdout, color)
    if is_list:
        click.echo("\n".join(_list(rules, terminal)), color=terminal.color)
        return
    from ds_accum.lint.explanation import explain

    pages = ("\n".join(explain(rule, terminal)) for rule in rules)
    separator = f"\n\n{terminal.paint('-' * terminal.width, 'dim')}\n\n"
    click.echo(separator.join(pages), color=terminal.color)


# What codes begin with.
_PREFIX = re.compile(r"DSA\d{0,2}", re.IGNORECASE)


def _named(words: Iterable[str]) -> tuple[list[Rule], bool]:
    """The rules of these codes, names and first characters of codes, each once; whether there are any of the last."""
    from ds_accum.lint.rules import RULES

    by_name = {name.lower(): rule for rule in RULES for name in (rule.code, rule.name)}
    found: dict[str, Rule] = {}
    is_list = False
    for word in words:
        named = [by_name[word.lower()]] if word.lower() in by_name else []
        if _PREFIX.fullmatch(word):
            named = [rule for rule in RULES if rule.code.startswith(word.upper())]
            is_list = True
        if not named:
            raise _unknown(word, RULES)
        found.update((rule.code, rule) for rule in named)
    return list(found.values()), is_list


def _unknown(word: str, rules: Sequence[Rule]) -> UsageError:
    from ds_accum.config.spelling import closest_words

    close = closest_words(word.lower(), [rule.name for rule in rules], most=3)
    if close:
        remedy = f"did you mean {' or '.join(close)}?"
    else:
        code = word.upper()
        # The longest beginning that any code has.
        begin = next(
            (
                code[:length]
                for length in (5, 4)
                if _PREFIX.fullmatch(code[:length]) and any(rule.code.startswith(code[:length]) for rule in rules)
            ),
            None,
        )
        remedy = (
            f"`ds-accum rule {begin}` lists those that begin so" if begin else "`ds-accum rule DSA` lists every rule"
        )
    return UsageError(f"there is no rule {word!r}", remedy=remedy)


def _list(rules: Iterable[Rule], terminal: Terminal) -> Iterator[str]:
    """Code, severity, name and what it is about, of each rule."""
    from ds_accum.lint.reporters.terminal import wrapped

    for rule in rules:
        severity = f"{rule.severity.value:<7}"
        margin = " " * (len(rule.code) + len(severity) + 4)
        first, *rest = wrapped(f"{rule.name}: {rule.summary}", terminal.width - len(margin))
        name, colon, text = first.partition(":")
        painted = f"{terminal.paint(rule.code, 'bold')}  {terminal.paint_as(rule.severity, severity)}"
        yield f"{painted}  {terminal.paint(name, 'bold')}{colon}{text}"
        yield from (margin + line for line in rest)


def _write_markdown(rules: Sequence[Rule], folder: Path | None, *, with_index: bool) -> None:
    from ds_accum.lint.markdown import INDEX, index_page, rule_page

    if folder is None:
        click.echo("\n".join(map(rule_page, rules)), nl=False)
        return
    from ds_accum.cli.files import write_file

    folder.mkdir(parents=True, exist_ok=True)
    for rule in rules:
        write_file(folder / f"{rule.code}.md", rule_page(rule))
    if with_index:
        write_file(folder / INDEX, index_page(rules))


def _as_json(rules: Iterable[Rule]) -> str:
    import json

    from ds_accum.lint.explanation import rule_values

    return json.dumps({"version": 1, "rules": [rule_values(rule) for rule in rules]}, indent=2)
