"""The line of a config that a diagnostic is about, as a terminal shows it, and where under it the carets go."""

from __future__ import annotations

from dataclasses import dataclass

from ds_accum.config.document import Document, Position
from ds_accum.config.wording import printable
from ds_accum.lint.reporters.terminal import columns_of

__all__ = ["Excerpt", "excerpt_of"]

_TAB_STOP = 4
_CUT = "..."
# How much of a line that is too long is shown before the place that matters, as a part of the width.
_LEAD = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """One line: its number, counted from 1, its text, and the carets' first column, counted from 0, and number."""

    line_number: int
    text: str
    caret_column: int
    caret_columns: int


@dataclass(frozen=True, slots=True)
class _Cell:
    """What one character becomes, with those drawn over it: a text that is never cut, and its columns."""

    text: str
    columns: int


def excerpt_of(document: Document, start: Position, end: Position, *, width: int) -> Excerpt:
    """The first line of a span in at most `width` columns, cut where it is longer.

    Tabs are spread to stops of 4 columns, and whatever a terminal would act on is escaped. A span over several lines is
    underlined to the end of its first; one of no character gets one caret.
    """
    line = document.line(start.line)
    first = start.column - 1
    last = end.column - 1 if end.line == start.line else len(line.rstrip())
    last = max(last, first)
    # A line may have a million characters: what can't be shown is not looked at.
    left = max(first - 2 * width, 0)
    right = last + 2 * width if last - first < width else first + 3 * width
    cells, place = _cells(line[left:right], first - left, last - left)
    is_cut_left, is_cut_right = left > 0, right < len(line)
    begin, stop = _window(cells, place, width, is_cut_left, is_cut_right)
    prefix = _CUT if is_cut_left or begin > 0 else ""
    suffix = _CUT if is_cut_right or stop < len(cells) else ""
    before = sum(cell.columns for cell in cells[begin : place[0]])
    under = sum(cell.columns for cell in cells[place[0] : min(place[1], stop)])
    return Excerpt(
        line_number=start.line,
        text=prefix + "".join(cell.text for cell in cells[begin:stop]) + suffix,
        caret_column=len(prefix) + before,
        caret_columns=max(under, 1),
    )


def _cells(text: str, first: int, last: int) -> tuple[list[_Cell], tuple[int, int]]:
    """The cells of a text, and which of them the characters from `first` up to `last` are."""
    cells: list[_Cell] = []
    column = 0
    place = [-1, -1]
    for index, character in enumerate(text):
        for end, offset in enumerate((first, last)):
            if index == offset:
                place[end] = len(cells)
        if character == "\t":
            shown = " " * (_TAB_STOP - column % _TAB_STOP)
        else:
            shown = printable(character)
        columns = sum(map(columns_of, shown))
        if columns == 0 and cells:
            cells[-1] = _Cell(cells[-1].text + shown, cells[-1].columns)
        else:
            cells.append(_Cell(shown, columns))
        column += columns
    begin = len(cells) if place[0] < 0 else place[0]
    return cells, (begin, max(len(cells) if place[1] < 0 else place[1], begin))


def _window(
    cells: list[_Cell], place: tuple[int, int], width: int, is_cut_left: bool, is_cut_right: bool
) -> tuple[int, int]:
    """Which cells fit into `width` columns beside the marks of a cut, the place that matters among them."""
    total = sum(cell.columns for cell in cells)
    if not is_cut_left and not is_cut_right and total <= width:
        return 0, len(cells)
    room = width - 2 * len(_CUT)
    begin, columns = place[0], 0
    lead = int(room * _LEAD)
    tail = sum(cell.columns for cell in cells[place[0] :])
    # Near the end of the line there is more room before the place.
    lead = max(lead, room - tail)
    while begin > 0 and columns + cells[begin - 1].columns <= lead:
        begin -= 1
        columns += cells[begin].columns
    stop = begin
    columns = 0
    while stop < len(cells) and columns + cells[stop].columns <= room:
        columns += cells[stop].columns
        stop += 1
    return begin, stop
