"""Offsets of a text <-> lines and characters as the protocol counts them.

Lines end at \\n, \\r\\n or \\r and nowhere else. A character is a unit of the encoding that client and server agreed
on: UTF-16 unless said otherwise, so that a character beyond U+FFFF counts as two.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from lsprotocol.types import Position, PositionEncodingKind, Range

__all__ = ["Places"]

_LINE_END = re.compile(r"\r\n|\r|\n")

_CODECS = {PositionEncodingKind.Utf8: "utf-8", PositionEncodingKind.Utf16: "utf-16-le"}
_BYTES = {PositionEncodingKind.Utf8: 1, PositionEncodingKind.Utf16: 2}


class Places:
    """The places of one text, whose offsets count code points."""

    def __init__(self, text: str, encoding: PositionEncodingKind | str = PositionEncodingKind.Utf16) -> None:
        self.text = text
        self._encoding = PositionEncodingKind(encoding)
        ends = [match.span() for match in _LINE_END.finditer(text)]
        self._starts = [0, *(end for _, end in ends)]
        self._ends = [*(start for start, _ in ends), len(text)]

    def position(self, offset: int) -> Position:
        """The place of an offset; one inside a line end is the end of the line."""
        offset = min(max(offset, 0), len(self.text))
        line = bisect_right(self._starts, offset) - 1
        before = self.text[self._starts[line] : min(offset, self._ends[line])]
        return Position(line=line, character=self._units(before))

    def range(self, start: int, end: int) -> Range:
        return Range(start=self.position(start), end=self.position(end))

    def offset(self, position: Position) -> int:
        """The offset of a place; one beyond the end of its line is that end, one beyond the text the text's."""
        if position.line >= len(self._starts):
            return len(self.text)
        start, end = self._starts[position.line], self._ends[position.line]
        units = 0
        for index in range(start, end):
            if units >= position.character:
                return index
            units += self._units(self.text[index])
        return end

    def _units(self, text: str) -> int:
        codec = _CODECS.get(self._encoding)
        if codec is None:
            return len(text)
        # Half of a surrogate pair can stand in a JSON text as an escape only, but a client may send anything.
        return len(text.encode(codec, "surrogatepass")) // _BYTES[self._encoding]
