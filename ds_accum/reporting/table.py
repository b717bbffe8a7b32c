"""A table as text in cells; each format only sets it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells under headings; the first column is the name, the others are numbers unless in `words`."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: frozenset[int] = frozenset({0})
    """Columns that are text, set to the left."""

    note: str = ""

    def is_word(self, column: int) -> bool:
        return column in self.words
