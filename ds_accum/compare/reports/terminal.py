"""The report for a terminal: the verdict, a table with one line a variant, misuses and projections; fits its width."""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.compare.projection import Projection, project
from ds_accum.compare.reports.tables import misuse_table, projection_table, run_facts, summary_table
from ds_accum.compare.result import Comparison
from ds_accum.compare.verdict import Tone, verdict
from ds_accum.reporting.table import Table
from ds_accum.reporting.text import columns_of, padded, painted, printable, shortened, wrapped

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
        first, *rest = wrapped(sentence.text, width - 2)
        yield f"{painted(_SIGNS[sentence.tone], _COLORS[sentence.tone], color)} {first}"
        yield from (f"  {line}" for line in rest)
    yield ""
    yield from _table(summary_table(comparison), width, color)
    misuses = misuse_table(comparison)
    if misuses is not None:
        yield from ("", painted("Misuse in the middle of a window", "1", color))
        yield from _misuses(misuses, width)
    if projection is not None:
        yield from ("", painted("Projection, not measured", "1", color))
        yield from _table(projection_table(project(comparison, projection), projection), width, color)
    yield ""
    for heading, text in run_facts(comparison):
        first, *rest = wrapped(text, width - 14)
        yield f"{painted(f'{heading:13}', '2', color)} {first}"
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
        yield painted(line, "1", color) if index == 0 else line
    for line in wrapped(table.note, width):
        yield painted(line, "2", color)


def _misuses(table: Table, width: int) -> Iterator[str]:
    """A matrix of sentences is too wide for a terminal: variants with the same row share a paragraph."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, *outcomes in table.rows:
        alike.setdefault(tuple(outcomes), []).append(name)
    for cells, names in alike.items():
        yield from wrapped(f"{', '.join(names)}:", width)
        for heading, cell in zip(table.headings[1:], cells, strict=True):
            first, *rest = wrapped(f"{heading}: {cell}", width - 2)
            yield f"  {first}"
            yield from (f"    {line}" for line in rest)
