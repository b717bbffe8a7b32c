"""The report for a terminal: the verdict, a table with one line a variant, misuses and projections; fits its width."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from unicodedata import category, east_asian_width

from ds_accum.compare.projection import Projection, project
from ds_accum.compare.reports.tables import Table, misuse_table, projection_table, run_facts, summary_table
from ds_accum.compare.result import Comparison
from ds_accum.compare.verdict import Tone, verdict

__all__ = ["render_terminal"]

_COLORS: dict[Tone, str] = {"good": "32", "bad": "31", "plain": "36"}
_SIGNS: dict[Tone, str] = {"good": "+", "bad": "!", "plain": "-"}
_GAP = 2
_LEAST_NAME = 16


def render_terminal(
    comparison: Comparison, *, width: int = 80, color: bool = False, projection: Projection | None = None
) -> str:
    """The text, with a line end at its end. No line is wider than `width` columns (at least 40); no colour unless asked
    for."""
    return "".join(f"{line}\n" for line in _lines(comparison, max(width, 40), color, projection))


def _lines(comparison: Comparison, width: int, color: bool, projection: Projection | None) -> Iterator[str]:
    for sentence in verdict(comparison):
        first, *rest = _wrapped(sentence.text, width - 2)
        yield f"{_paint(_SIGNS[sentence.tone], _COLORS[sentence.tone], color)} {first}"
        yield from (f"  {line}" for line in rest)
    yield ""
    yield from _table(summary_table(comparison), width, color)
    misuses = misuse_table(comparison)
    if misuses is not None:
        yield from ("", _paint("Misuse in the middle of a window", "1", color))
        yield from _misuses(misuses, width)
    if projection is not None:
        yield from ("", _paint("Projection, not measured", "1", color))
        yield from _table(projection_table(project(comparison, projection), projection), width, color)
    yield ""
    for heading, text in run_facts(comparison):
        first, *rest = _wrapped(text, width - 14)
        yield f"{_paint(f'{heading:13}', '2', color)} {first}"
        yield from (f"{'':14}{line}" for line in rest)


def _table(table: Table, width: int, color: bool) -> Iterator[str]:
    """Columns as wide as what stands in them; the name is cut where the line would be too long, then the last columns
    are left out."""
    rows = [tuple(map(printable, row)) for row in (table.headings, *table.rows)]
    widths = [max(map(columns_of, column)) for column in zip(*rows, strict=True)]
    while len(widths) > 1 and sum(widths[1:]) + _GAP * (len(widths) - 1) + min(widths[0], _LEAST_NAME) > width:
        widths.pop()
    widths[0] = min(widths[0], width - sum(widths[1:]) - _GAP * (len(widths) - 1))
    for index, row in enumerate(rows):
        cells = [
            padded(shortened(cell, size), size, to_left=table.is_word(column))
            for column, (cell, size) in enumerate(zip(row, widths, strict=False))
        ]
        line = (" " * _GAP).join(cells).rstrip()
        yield _paint(line, "1", color) if index == 0 else line
    for line in _wrapped(table.note, width):
        yield _paint(line, "2", color)


def _misuses(table: Table, width: int) -> Iterator[str]:
    """A matrix of sentences is too wide for a terminal: variants with the same row share a paragraph."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, *outcomes in table.rows:
        alike.setdefault(tuple(outcomes), []).append(name)
    for cells, names in alike.items():
        yield from _wrapped(f"{', '.join(names)}:", width)
        for heading, cell in zip(table.headings[1:], cells, strict=True):
            first, *rest = _wrapped(f"{heading}: {cell}", width - 2)
            yield f"  {first}"
            yield from (f"    {line}" for line in rest)


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns; a percent sign stays with its number."""
    lines = textwrap.wrap(printable(text).replace(" %", "\xa0%"), width, break_on_hyphens=False) or [""]
    return [part.replace("\xa0", " ") for line in lines for part in _split_wide(line, width)]


def _split_wide(line: str, width: int) -> Iterator[str]:
    """textwrap counts characters; some take two columns."""
    while columns_of(line) > width:
        head = line
        while columns_of(head) > width:
            head = head[:-1]
        yield head
        line = line[len(head) :]
    yield line


def printable(text: str) -> str:
    """Without what would move a terminal's cursor or change its colours."""
    return re.sub(r"\s+", " ", "".join(" " if category(sign) in ("Cc", "Cf") else sign for sign in text)).strip()


def columns_of(text: str) -> int:
    return sum(0 if category(sign) in ("Mn", "Me") else 2 if east_asian_width(sign) in "WF" else 1 for sign in text)


def shortened(text: str, width: int) -> str:
    """Cut in the middle with "..", so that both ends of a long name can be read."""
    if columns_of(text) <= width:
        return text
    head, tail = text[: len(text) // 2], text[len(text) // 2 :]
    while columns_of(head) + columns_of(tail) + 2 > width:
        if columns_of(head) > columns_of(tail):
            head = head[:-1]
        else:
            tail = tail[1:]
    return f"{head}..{tail}"


def padded(text: str, width: int, *, to_left: bool) -> str:
    space = " " * (width - columns_of(text))
    return text + space if to_left else space + text


def _paint(text: str, style: str, color: bool) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if color and text else text
