"""A Document in GitHub's Markdown, for pasting into an issue; whatever a text holds is shown as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ds_accum.reporting.document import Document, Section
from ds_accum.reporting.table import Table

__all__ = ["escaped", "fenced", "render_markdown", "table_lines"]


def render_markdown(document: Document) -> str:
    """The text, with a line end at its end."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: Document) -> Iterator[str]:
    yield f"# {escaped(document.title)}"
    if document.lead:
        yield ""
        yield from (f"* {escaped(sentence)}" for sentence in document.lead)
    for section in document.sections:
        yield from ("", *_section(section))


def _section(section: Section) -> Iterator[str]:
    yield f"## {escaped(section.title)}"
    for paragraph in section.paragraphs:
        yield from ("", escaped(paragraph))
    if section.figure_text:
        yield from ("", *fenced("\n".join(section.figure_text), "text"))
    if section.table is not None:
        yield from ("", *table_lines(section.table))


def table_lines(table: Table) -> Iterator[str]:
    """The table and, below it, its note."""
    yield _row(table.headings)
    yield f"|{'|'.join('---' if table.is_word(column) else '--:' for column in range(len(table.headings)))}|"
    yield from map(_row, table.rows)
    if table.note:
        yield from ("", escaped(table.note))


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(map(escaped, cells))} |"


def escaped(text: str) -> str:
    """Letters that Markdown or HTML would read; line ends are spaces."""
    return re.sub(r"([\\`*_|\[\]<>&#$~])", r"\\\1", re.sub(r"\s+", " ", text))


def fenced(text: str, language: str) -> list[str]:
    """A block of code whose fence is longer than any in it."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *text.splitlines(), fence]
