"""The report in Markdown, for pasting into an issue."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from ds_accum.compare.projection import Projection, project
from ds_accum.compare.reports.sections import Section, sections
from ds_accum.compare.reports.tables import Table, run_facts, summary_table
from ds_accum.compare.result import Comparison
from ds_accum.compare.verdict import verdict

__all__ = ["render_markdown"]


def render_markdown(comparison: Comparison, *, projection: Projection | None = None) -> str:
    """GitHub's dialect; whatever names and errors hold is shown as it is."""
    return "\n".join(_lines(comparison, projection)) + "\n"


def _lines(comparison: Comparison, projection: Projection | None) -> Iterator[str]:
    yield from ("# ds-accum compare", "")
    for sentence in verdict(comparison):
        mark = {"good": "**+** ", "bad": "**!** ", "plain": ""}[sentence.tone]
        yield f"* {mark}{_escaped(sentence.text)}"
    yield ""
    yield from _table(summary_table(comparison))
    steps = None if projection is None else project(comparison, projection)
    for section in sections(comparison, steps, projection):
        yield from _section(section)
    yield from ("## What was run", "")
    for heading, text in run_facts(comparison):
        yield f"* {heading}: {_escaped(text)}"
    for result in comparison.results:
        if result.failure:
            yield from ("", f"{_escaped(result.name)}, {result.status}:", "", *_fenced(result.failure, "text"))
    yield from ("", "<details><summary>Configs</summary>", "")
    for variant in comparison.spec.variants:
        if variant.config:
            yield from (_escaped(variant.name), "", *_fenced(json.dumps(variant.config, indent=2), "json"), "")
    yield "</details>"


def _section(section: Section) -> Iterator[str]:
    yield from (f"## {section.title}", "")
    yield from _table(section.table)


def _table(table: Table) -> Iterator[str]:
    yield _row(table.headings)
    yield f"|{'|'.join('---' if table.is_word(column) else '--:' for column in range(len(table.headings)))}|"
    yield from map(_row, table.rows)
    yield ""
    if table.note:
        yield from (_escaped(table.note), "")


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    """Letters of a name that Markdown or HTML would read; line ends are spaces."""
    return re.sub(r"([\\`*_|\[\]<>&#$~])", r"\\\1", re.sub(r"\s+", " ", text))


def _fenced(text: str, language: str) -> list[str]:
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *text.splitlines(), fence]
