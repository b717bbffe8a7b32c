"""Members of an object in braces come and go: JSON, Hjson, YAML in flow style, and Hjson's root without braces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from ds_accum.config.document import Document, Path, Span, Syntax
from ds_accum.config.paths import value_at
from ds_accum.lint.fix import TextEdit
from ds_accum.lint.fixer.members import (
    Member,
    Token,
    end_of_line,
    gap,
    indentation_at,
    line_end_of,
    members_of,
    start_of_line,
)
from ds_accum.lint.fixer.writing import Style, written_key, written_value

__all__ = ["added", "removed"]

_COLON = re.compile(r"[ \t]*:[ \t]*")
_LEADING_COMMA = re.compile(r"[ \t]*,[ \t]*")


# ------------------------------------------------------------------------------------------------------------ a new one


def added(document: Document, path: Path, value: Any, written: str | None) -> list[TextEdit] | None:
    """The last member of its object, in the style of the others. `written` is the value as it stood elsewhere."""
    members = members_of(document, path[:-1])
    if members is None:
        return None
    if not members:
        return _added_to_an_empty_one(document, path, value, written)
    text, last = document.text, members[-1]
    after = gap(document, last.value.end, _inside(document, path[:-1], members).end)
    if after is None:
        return None
    trailing_comma = next((token for token in after if token.kind == "comma"), None)
    prefix = text[start_of_line(text, last.key.start) : last.key.start]
    ends_its_line = _is_quoteless(document, path[:-1], last)
    style = _style(document, path[:-1], members)
    if prefix.strip(" \t") and not _LEADING_COMMA.fullmatch(prefix) and not ends_its_line:
        member = _member(document, path, value, written, style, None)
        return [TextEdit(last.value.end, last.value.end, f"{style.comma}{member}")]
    if _LEADING_COMMA.fullmatch(prefix):
        member = _member(document, path, value, written, style, None)
        return [TextEdit(last.value.end, last.value.end, f"{style.line_end}{prefix}{member}")]
    indentation = indentation_at(text, last.key.start)
    member = _member(document, path, value, written, style, indentation)
    place = _end_of_its_line(after, last.value.end)
    new = f"{style.line_end}{indentation}{member}{',' if trailing_comma is not None else ''}"
    if trailing_comma is not None or not style.has_commas or ends_its_line:
        return [TextEdit(place, place, new)]
    if place == last.value.end:
        return [TextEdit(place, place, f",{new}")]
    return [TextEdit(last.value.end, last.value.end, ","), TextEdit(place, place, new)]


def _end_of_its_line(after: list[Token], end: int) -> int:
    """Where what belongs to a value ends: behind the comma and the comments on its line."""
    for token in after:
        if token.kind == "line end":
            return end
        if token.kind != "blank":
            end = token.end
    # The closing brace stands on the same line: what is new comes before the blanks that lead to it.
    return end


def _added_to_an_empty_one(document: Document, path: Path, value: Any, written: str | None) -> list[TextEdit] | None:
    text, span = document.text, document.value_span(path[:-1])
    if span is None or text[span.start] != "{" or text[span.end - 1] != "}":
        return None
    inside = text[span.start + 1 : span.end - 1]
    outer = indentation_at(text, span.start)
    style = _style(document, path[:-1], [])
    if not inside.strip() and len(inside.splitlines()) <= 1:
        return [TextEdit(span.start + 1, span.end - 1, _member(document, path, value, written, style, None))]
    if gap(document, span.start + 1, span.end - 1) is None:
        return None
    member = _member(document, path, value, written, style, outer + style.unit)
    blanks = len(inside) - len(inside.rstrip(" \t"))
    if inside[: len(inside) - blanks].endswith(("\n", "\r")):
        place = span.end - 1 - blanks
        return [TextEdit(place, place, f"{outer}{style.unit}{member}{style.line_end}")]
    return [TextEdit(span.end - 1 - blanks, span.end - 1 - blanks, f" {member}")]


def _member(
    document: Document, path: Path, value: Any, written: str | None, style: Style, indentation: str | None
) -> str:
    """Key, colon and value; with an indentation, on lines of its own if that is how the document writes objects."""
    if written is None:
        lines = indentation if indentation is not None and not _writes_objects_on_one_line(document) else None
        written = written_value(value, style, lines)
    return f"{written_key(str(path[-1]), style.key_quote)}{style.colon}{written}"


# ------------------------------------------------------------------------------------------------------------ one to go


def removed(document: Document, path: Path) -> list[TextEdit] | None:
    """A member goes with its comma and, if nothing else stands there, with its line; comments stay."""
    members = members_of(document, path[:-1])
    if members is None or all(member.name != path[-1] for member in members):
        return None
    text, index = document.text, [member.name for member in members].index(path[-1])
    member = members[index]
    inside = _inside(document, path[:-1], members)
    before = gap(document, members[index - 1].value.end if index else inside.start, member.key.start)
    is_last = index == len(members) - 1
    after = gap(document, member.value.end, inside.end if is_last else members[index + 1].key.start)
    if before is None or after is None:
        return None
    has_comments = any(token.kind == "comment" for token in (*before, *after))
    if len(members) == 1 and not has_comments and _is_in_braces(document, path[:-1]):
        return [TextEdit(inside.start, inside.end, "")]
    start, end = start_of_line(text, member.key.start), end_of_line(text, member.value.end)
    gone = [Span(member.key.start, member.value.end)]
    comma = _its_comma(text, before, after, start, is_last)
    if comma is not None:
        gone.append(Span(comma.start, comma.end))
    left = _left(text, Span(start, member.key.start), gone), _left(text, Span(member.value.end, end.start), gone)
    # Of a line that holds more of the object or its brackets, only the blanks around the member go.
    if not left[0].strip(" \t"):
        if not left[1].strip(" \t"):
            gone.append(_whole_line(text, Span(start, end.start), end))
        else:
            gone.append(_blanks_after(text, max(span.end for span in gone if span.end <= end.start)))
    else:
        if is_last or not left[1].strip(" \t"):
            gone.append(_blanks_before(text, member.key.start))
        if not is_last or not left[1].strip(" \t"):
            gone.append(_blanks_after(text, max(span.end for span in gone if span.end <= end.start)))
    return [TextEdit(span.start, span.end, "") for span in _joined(gone)]


def _its_comma(text: str, before: list[Token], after: list[Token], start: int, is_last: bool) -> Token | None:
    """The comma that is one too many without the member."""
    following = next((token for token in after if token.kind == "comma"), None)
    preceding = next((token for token in reversed(before) if token.kind == "comma"), None)
    if preceding is not None and not text[start : preceding.start].strip(" \t") and preceding.start >= start:
        return preceding  # lines that begin with their comma
    return following if following is not None or not is_last else preceding


def _left(text: str, span: Span, gone: list[Span]) -> str:
    """What is left of a part of the text."""
    return "".join(text[i] for i in range(*span) if not any(out.start <= i < out.end for out in gone))


def _whole_line(text: str, line: Span, end: Span) -> Span:
    if end.end > end.start:
        return Span(line.start, end.end)
    # The last line has no line end: the one before it goes.
    before = text[: line.start]
    return Span(len(before) - (2 if before.endswith("\r\n") else 1 if before.endswith(("\n", "\r")) else 0), line.end)


def _blanks_after(text: str, offset: int) -> Span:
    end = offset
    while text[end : end + 1] in (" ", "\t"):
        end += 1
    return Span(offset, end)


def _blanks_before(text: str, offset: int) -> Span:
    start = offset
    while start and text[start - 1] in " \t":
        start -= 1
    return Span(start, offset)


def _joined(spans: list[Span]) -> Iterator[Span]:
    start, end = -1, -1
    for span in sorted(spans):
        if span.start <= end:
            end = max(end, span.end)
            continue
        if start < end:
            yield Span(start, end)
        start, end = span
    if start < end:
        yield Span(start, end)


# ------------------------------------------------------------------------------------------------------------ its style


def _is_in_braces(document: Document, path: Path) -> bool:
    span = document.value_span(path)
    return span is not None and document.text[span.start] == "{"


def _inside(document: Document, path: Path, members: list[Member]) -> Span:
    """What is between the braces; of a root without them, from its first member to the end of the text."""
    span = document.value_span(path)
    if span is None or not _is_in_braces(document, path):
        return Span(members[0].key.start, len(document.text))
    return Span(span.start + 1, span.end - 1)


def _is_quoteless(document: Document, path: Path, member: Member) -> bool:
    """Whether a value is a string of Hjson that takes all the rest of its line, commas included."""
    value = value_at(document.value, (*path, member.name))
    return (
        document.syntax is not Syntax.YAML and isinstance(value, str) and document.text[member.value.start] not in "\"'"
    )


def _style(document: Document, path: Path, members: list[Member]) -> Style:
    """How the members of an object are written; of an empty one, those of the nearest object around it."""
    text = document.text
    for length in range(len(path), -1, -1):
        around = members if length == len(path) else members_of(document, path[:length])
        if around:
            break
    else:
        return Style(syntax=document.syntax, line_end=line_end_of(text))
    last = around[-1]
    colon = text[last.key.end : last.value.start]
    quote = text[last.key.start] if text[last.key.start] in "\"'" else ""
    if not _COLON.fullmatch(colon) or (document.syntax is Syntax.YAML and not colon.endswith(" ")):
        colon = ": "
    comma = ", " if colon != ":" else ","
    if len(around) > 1:
        between = text[around[-2].value.end : last.key.start]
        comma = between if re.fullmatch(r"[ \t]*,[ \t]*", between) else comma
    inside = _inside(document, path[:length], around)
    padding = text[inside.start : around[0].key.start]
    outer = indentation_at(text, inside.start)
    inner = indentation_at(text, last.key.start)
    unit = inner.removeprefix(outer) if inner.startswith(outer) else ""
    return Style(
        syntax=document.syntax,
        line_end=line_end_of(text),
        unit=unit or _unit_of_the_document(document),
        colon=colon,
        comma=comma,
        padding=padding if not padding.strip(" ") else "",
        key_quote=quote,
        has_commas=_has_commas(document, path, quote),
    )


def _unit_of_the_document(document: Document) -> str:
    """The indentation of the root's first member that has one."""
    for member in members_of(document, ()) or ():
        indentation = indentation_at(document.text, member.key.start)
        if indentation:
            return indentation
    return "  "


def _has_commas(document: Document, path: Path, quote: str) -> bool:
    """Whether members are set apart by commas: in this object or, if it does not tell, in those around it."""
    for length in range(len(path), -1, -1):
        members = members_of(document, path[:length]) or []
        for first, second in reversed(list(pairwise(members))):
            if not _is_quoteless(document, path[:length], first):
                between = gap(document, first.value.end, second.key.start) or []
                return any(token.kind == "comma" for token in between)
    return quote != "" or document.syntax is Syntax.YAML


def _writes_objects_on_one_line(document: Document) -> bool:
    """Whether the document has an object below its root on one line, or none at all."""
    pending: list[tuple[Path, Any]] = [((name,), item) for name, item in document.value.items()]
    found = False
    while pending:
        path, value = pending.pop()
        if not isinstance(value, dict) or not value:
            continue
        span = document.value_span(path)
        if span is not None and len(document.text[span.start : span.end].splitlines()) == 1:
            return True
        found = True
        pending += [((*path, name), item) for name, item in value.items()]
    return not found
