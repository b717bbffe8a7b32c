"""The report in Markdown, for pasting into an issue."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ds_accum.compare.projection import Projection, project
from ds_accum.compare.reports.sections import Section, sections
from ds_accum.compare.reports.tables import run_facts, summary_table
from ds_accum.compare.result import Comparison
from ds_accum.compare.verdict import verdict
from ds_accum.reporting.markdown import escaped, fenced, table_lines

__all__ = ["render_markdown"]


def render_markdown(comparison: Comparison, *, projection: Projection | None = None) -> str:
    """GitHub's dialect; whatever names and errors hold is shown as it is."""
    return "\n".join(_lines(comparison, projection)) + "\n"


def _lines(comparison: Comparison, projection: Projection | None) -> Iterator[str]:
    yield from ("# ds-accum compare", "")
    for sentence in verdict(comparison):
        mark = {"good": "**+** ", "bad": "**!** ", "plain": ""}[sentence.tone]
        yield f"* {mark}{escaped(sentence.text)}"
    yield ""
    yield from (*table_lines(summary_table(comparison)), "")
    steps = None if projection is None else project(comparison, projection)
    for section in sections(comparison, steps, projection):
        yield from _section(section)
    yield from ("## What was run", "")
    for heading, text in run_facts(comparison):
        yield f"* {heading}: {escaped(text)}"
    for result in comparison.results:
        if result.failure:
            yield from ("", f"{escaped(result.name)}, {result.status}:", "", *fenced(result.failure, "text"))
    yield from ("", "<details><summary>Configs</summary>", "")
    for variant in comparison.spec.variants:
        if variant.config:
            yield from (escaped(variant.name), "", *fenced(json.dumps(variant.config, indent=2), "json"), "")
    yield "</details>"


def _section(section: Section) -> Iterator[str]:
    yield from (f"## {section.title}", "")
    yield from (*table_lines(section.table), "")
