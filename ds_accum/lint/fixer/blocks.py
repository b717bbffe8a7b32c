"""Members of an indented block of YAML come and go."""

from __future__ import annotations

from typing import Any

from ds_accum.config.document import Document, Path, Span
from ds_accum.lint.fix import TextEdit
from ds_accum.lint.fixer.members import (
    Member,
    end_of_line,
    gap,
    line_end_of,
    members_of,
    start_of_line,
)
from ds_accum.lint.fixer.writing import Style, written_key, written_value

__all__ = ["added", "removed"]


def added(document: Document, path: Path, value: Any, written: str | None) -> list[TextEdit] | None:
    """The last member of its block, on the line after what belongs to the one before."""
    members = members_of(document, path[:-1])
    if not members or _merges(document, path[:-1]):
        return None
    text, last = document.text, members[-1]
    place = _end_of_its_line(document, last)
    if place is None:
        return None
    style = Style(syntax=document.syntax, line_end=line_end_of(text), key_quote="")
    indentation = " " * (members[0].key.start - start_of_line(text, members[0].key.start))
    lines = _lines(path[-1], value, written, style, indentation, _unit(document, members))
    return [TextEdit(place, place, "".join(f"{style.line_end}{line}" for line in lines))]


def removed(document: Document, path: Path) -> list[TextEdit] | None:
    """A member goes with its lines; a comment behind it stays. The only one can't go: nothing would be left of it."""
    members = members_of(document, path[:-1])
    if members is None or len(members) < 2 or _merges(document, path[:-1]):
        return None
    text = document.text
    member = next((item for item in members if item.name == path[-1]), None)
    if member is None:
        return None
    start, end = start_of_line(text, member.key.start), end_of_line(text, member.value.end)
    comment = gap(document, member.value.end, end.start)
    if text[start : member.key.start].strip(" ") or comment is None:
        return None
    if any(token.kind == "comment" for token in comment):
        first = next(token for token in comment if token.kind == "comment")
        return [TextEdit(member.key.start, first.start, "")]
    if end.end > end.start:
        return [TextEdit(start, end.end, "")]
    before = len(text[:start]) - (2 if text[:start].endswith("\r\n") else 1)
    return [TextEdit(before, end.start, "")] if before >= 0 else None


def _lines(name: str | int, value: Any, written: str | None, style: Style, indentation: str, unit: str) -> list[str]:
    key = f"{indentation}{written_key(str(name), style.key_quote)}:"
    if written is None and isinstance(value, dict) and value:
        inner = [
            line for key_, item in value.items() for line in _lines(key_, item, None, style, indentation + unit, unit)
        ]
        return [key, *inner]
    return [f"{key} {written_value(value, style) if written is None else written}"]


def _end_of_its_line(document: Document, member: Member) -> int | None:
    """Behind a value and the comment on its last line; None where something else follows there."""
    end = end_of_line(document.text, member.value.end)
    tokens = gap(document, member.value.end, end.start)
    if tokens is None or any(token.kind == "comma" for token in tokens):
        return None
    return max((token.end for token in tokens if token.kind == "comment"), default=member.value.end)


def _merges(document: Document, path: Path) -> bool:
    """Whether a block repeats another one's members: what is added or removed there may not be what it seems."""
    span = document.value_span(path) or Span(0, 0)
    return "<<" in document.text[span.start : span.end]


def _unit(document: Document, members: list[Member]) -> str:
    """One step of indentation, as the first block inside of this one has it."""
    text = document.text
    for member in members:
        column = member.key.start - start_of_line(text, member.key.start)
        inner = member.value.start - start_of_line(text, member.value.start)
        if start_of_line(text, member.value.start) > member.key.start and inner > column:
            return " " * (inner - column)
    return "  "
