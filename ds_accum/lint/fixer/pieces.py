"""Several rounds of edits as one: which parts of the first text are still there, and what stands between them now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ds_accum.lint.fix import TextEdit

__all__ = ["Pieces", "edited"]


def edited(text: str, edits: Iterable[TextEdit]) -> str:
    """The text after edits that are in its order and apart from each other."""
    parts, position = [], 0
    for edit in edits:
        parts += [text[position : edit.start], edit.text]
        position = edit.end
    return "".join([*parts, text[position:]])


class Pieces:
    """A text as pieces: (start, end) of the first text, or a string that is new."""

    def __init__(self, text: str) -> None:
        self._first = text
        self._pieces: list[tuple[int, int] | str] = [(0, len(text))]

    @property
    def text(self) -> str:
        return "".join(piece if isinstance(piece, str) else self._first[slice(*piece)] for piece in self._pieces)

    def apply(self, edits: Iterable[TextEdit]) -> None:
        """Edits of `text`, in its order and apart from each other."""
        pieces: list[tuple[int, int] | str] = []
        position = 0
        for edit in edits:
            pieces += self._between(position, edit.start)
            if edit.text:
                pieces.append(edit.text)
            position = edit.end
        self._pieces = [*pieces, *self._between(position, len(self.text))]

    def edits(self) -> tuple[TextEdit, ...]:
        """What makes `text` of the first text."""
        found, new, position = [], "", 0
        for piece in (*self._pieces, (len(self._first),) * 2):
            if isinstance(piece, str):
                new += piece
                continue
            start, end = piece
            if new or start > position:
                found.append(TextEdit(position, start, new))
            new, position = "", end
        return tuple(found)

    def _between(self, start: int, end: int) -> Iterator[tuple[int, int] | str]:
        offset = 0
        for piece in self._pieces:
            length = len(piece) if isinstance(piece, str) else piece[1] - piece[0]
            first, last = max(start - offset, 0), min(end - offset, length)
            if first < last:
                yield piece[first:last] if isinstance(piece, str) else (piece[0] + first, piece[0] + last)
            offset += length
