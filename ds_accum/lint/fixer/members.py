"""An object as it is written: its members in the order of the text, and what stands between two of them."""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

from ds_accum.config.document import BYTE_ORDER_MARK, Document, Path, Span, Syntax
from ds_accum.config.paths import value_at

__all__ = [
    "Member",
    "Token",
    "end_of_line",
    "gap",
    "indentation_at",
    "line_end_of",
    "members_of",
    "start_of_line",
]

Kind = Literal["blank", "line end", "comma", "comment"]

_BETWEEN = {
    Syntax.YAML: re.compile(r"(?P<blank>[ \t]+)|(?P<end>\r\n|\n|\r)|(?P<comma>,)|(?P<comment>(?<![^\s,{\[])#[^\n\r]*)"),
    Syntax.HJSON: re.compile(
        r"(?P<blank>[ \t]+)|(?P<end>\r\n|\n|\r)|(?P<comma>,)|(?P<comment>(?:#|//)[^\n\r]*|/\*.*?\*/)", re.DOTALL
    ),
}
_KINDS: dict[str, Kind] = {"blank": "blank", "end": "line end", "comma": "comma", "comment": "comment"}
_LINE_END = re.compile(r"\r\n|\n|\r")


class Member(NamedTuple):
    """A key and its value, quotes and brackets included."""

    name: str | int
    key: Span
    value: Span


class Token(NamedTuple):
    """What may stand between members; a comment that goes to the end of its line is without the line end."""

    kind: Kind
    start: int
    end: int


def members_of(document: Document, path: Path) -> list[Member] | None:
    """The members of the object at a path; None where that is none, or not all of it is written there.

    What YAML repeats by an alias or merges stands elsewhere, and a change there would change more than one thing.
    """
    values: Any = value_at(document.value, path)
    span = document.value_span(path)
    if not isinstance(values, dict) or span is None:
        return None
    found = []
    for name in values:
        key, value = document.key_span((*path, name)), document.value_span((*path, name))
        if key is None or value is None or not span.start <= key.start <= value.end <= span.end:
            return None
        found.append(Member(name, key, value))
    return sorted(found, key=lambda member: member.key.start)


def gap(document: Document, start: int, end: int) -> list[Token] | None:
    """What stands there, None if it is anything else than blanks, line ends, commas and comments."""
    pattern = _BETWEEN[Syntax.YAML if document.syntax is Syntax.YAML else Syntax.HJSON]
    tokens = []
    while start < end:
        match = pattern.match(document.text, start, end)
        if match is None or match.lastgroup is None:
            return None
        tokens.append(Token(_KINDS[match.lastgroup], *match.span()))
        start = match.end()
    return tokens


def start_of_line(text: str, offset: int) -> int:
    start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
    return 1 if start == 0 and text.startswith(BYTE_ORDER_MARK) else start


def end_of_line(text: str, offset: int) -> Span:
    """The line end at or after an offset; empty where the text ends first."""
    match = _LINE_END.search(text, offset)
    return Span(*match.span()) if match is not None else Span(len(text), len(text))


def indentation_at(text: str, offset: int) -> str:
    """The blanks that the line of an offset begins with."""
    line = text[start_of_line(text, offset) : offset]
    return line[: len(line) - len(line.lstrip(" \t"))]


def line_end_of(text: str) -> str:
    """How the text ends its lines, the first of them if it has several ways."""
    match = _LINE_END.search(text)
    return match[0] if match is not None else "\n"
