"""A Document on a terminal: no line wider than it, nothing left out; too wide tables are wrapped or set as lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from ds_accum.reporting.document import Document, Section
from ds_accum.reporting.table import Table
from ds_accum.reporting.text import columns_of, padded, painted, printable, wrapped

__all__ = ["render_text"]

_GAP = 2
_LEAST_WIDTH = 40
_LEAST_WORDS = 14
"""Below so many columns a column of words is no longer read as text."""


def render_text(document: Document, *, width: int = 80, color: bool = False) -> str:
    """The text, with a line end at its end. `width` counts columns, at least 40; colour only where asked for."""
    return "".join(f"{line}\n" for line in _lines(document, max(width, _LEAST_WIDTH), color))


def _lines(document: Document, width: int, color: bool) -> Iterator[str]:
    for line in wrapped(document.title, width):
        yield painted(line, "1", color)
    for sentence in document.lead:
        first, *rest = wrapped(sentence, width - 2)
        yield f"{painted('-', '36', color)} {first}"
        yield from (f"  {line}" for line in rest)
    for section in document.sections:
        yield ""
        yield from _section(section, width, color)


def _section(section: Section, width: int, color: bool) -> Iterator[str]:
    for line in wrapped(section.title, width):
        yield painted(line, "1", color)
    for paragraph in section.paragraphs:
        yield from wrapped(paragraph, width)
    yield from section.figure_text
    if section.table is not None:
        yield from _table(section.table, width, color)


def _table(table: Table, width: int, color: bool) -> Iterator[str]:
    rows = [tuple(map(printable, row)) for row in (table.headings, *table.rows)]
    widths = _widths(table, rows, width)
    if widths is None:
        yield from _list(rows, width, color)
    else:
        for index, row in enumerate(rows):
            for line in _row(table, row, widths):
                yield painted(line, "2", color) if index == 0 else line
    if table.note:
        for line in wrapped(table.note, width):
            yield painted(line, "2", color)


def _widths(table: Table, rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Of every column; those of words give way first. None where even that is not enough."""
    widths = [max(map(columns_of, column)) for column in zip(*rows, strict=True)]
    excess = sum(widths) + _GAP * (len(widths) - 1) - width
    while excess > 0:
        words = [column for column in range(len(widths)) if table.is_word(column) and widths[column] > _LEAST_WORDS]
        if not words:
            return None
        widest = max(words, key=lambda column: widths[column])
        others = [widths[column] for column in words if widths[column] < widths[widest]]
        cut = min(excess, max(1, widths[widest] - max([_LEAST_WORDS, *others])))
        widths[widest] -= cut
        excess -= cut
    return widths


def _row(table: Table, row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    cells = [wrapped(cell, size) if cell else [""] for cell, size in zip(row, widths, strict=True)]
    for lines in zip_longest(*cells, fillvalue=""):
        set_ = [
            padded(line, size, to_left=table.is_word(column))
            for column, (line, size) in enumerate(zip(lines, widths, strict=True))
        ]
        yield (" " * _GAP).join(set_).rstrip()


def _list(rows: Sequence[Sequence[str]], width: int, color: bool) -> Iterator[str]:
    """Each row as its name, with a line a cell."""
    headings, *others = rows
    for name, *cells in others:
        for line in wrapped(f"{headings[0]} {name}" if headings[0] else name, width):
            yield painted(line, "1", color)
        for heading, cell in zip(headings[1:], cells, strict=True):
            first, *rest = wrapped(f"{heading}: {cell}", width - 2)
            yield f"  {first}"
            yield from (f"    {line}" for line in (piece for part in rest for piece in wrapped(part, width - 4)))
