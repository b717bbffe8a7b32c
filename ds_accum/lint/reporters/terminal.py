"""What a terminal can show: so many columns, in colour or not, and some characters wider than others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ds_accum.lint.diagnostic import Severity

__all__ = ["Terminal", "columns_of", "inert", "width_of", "wrapped"]

_STYLES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}
_OF_SEVERITY = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


class Terminal(NamedTuple):
    """Where a report is read. `width` is in columns."""

    width: int = 80
    color: bool = False

    def paint(self, text: str, *styles: str) -> str:
        """The text in a style, such as "bold" and "red"; unchanged without colour."""
        if not self.color or not text:
            return text
        return f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{text}\x1b[0m"

    def paint_as(self, severity: Severity, text: str) -> str:
        """The text in the colour of a severity."""
        return self.paint(text, "bold", _OF_SEVERITY[severity])


def columns_of(character: str) -> int:
    """How many columns a character takes: 2 for a wide one, 0 for one that is drawn over the one before."""
    if character.isascii():
        return 1
    import unicodedata  # a slow import, and most configs are ASCII

    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def width_of(text: str) -> int:
    """How many columns a text takes."""
    return len(text) if text.isascii() else sum(map(columns_of, text))


def wrapped(text: str, width: int) -> Iterator[str]:
    """The lines of a text, broken at spaces so that each takes at most `width` columns; a longer word stays whole."""
    line, used = "", 0
    for word in text.split(" "):
        columns = width_of(word)
        if line and used + 1 + columns > width:
            yield line
            line, used = word, columns
        elif line:
            line, used = f"{line} {word}", used + 1 + columns
        else:
            line, used = word, columns
    yield line


def inert(line: str) -> str:
    """A line of a report as a build log may hold it: GitHub's runner obeys `::command::` at the start of any line of a
    log, and `##[command]` in it, and both could stand in the name of a file or of a key."""
    if "::" not in line and "##[" not in line:
        return line
    text = line.lstrip()
    if text.startswith("::"):
        line = f"{line[: len(line) - len(text)]}\\x3a{text[1:]}"
    return line.replace("##[", "#\\x23[")
