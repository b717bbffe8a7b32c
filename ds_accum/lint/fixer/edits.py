"""A fix, in paths and values -> the same fix as edits of a document's text, or None where it can't be said so."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ds_accum.config.document import BYTE_ORDER_MARK, Document, Path, Syntax, read_text
from ds_accum.config.embedded import EmbeddedConfig
from ds_accum.config.json_syntax import is_strict_json
from ds_accum.config.paths import NOTHING, value_at
from ds_accum.lint.fix import Change, Fix, MoveKey, RemoveKey, RenameKey, SetValue, TextEdit, TextFix
from ds_accum.lint.fixer import blocks, braces
from ds_accum.lint.fixer.intended import NotApplicable, changed, is_same
from ds_accum.lint.fixer.pieces import Pieces
from ds_accum.lint.fixer.writing import Style, written_key, written_scalar, written_value

__all__ = ["holds_exactly", "in_document", "text_fix"]

# What ends a word or a number without quotes in Hjson; anything else would make it a string up to the end of its line.
_ENDS_A_WORD = re.compile(r"[ \t]*(?:[,}\]#\n\r]|/[/*]|\Z)")
# What a value of YAML begins with that is repeated elsewhere, repeats something, or is tagged.
_ANCHOR_ALIAS_TAG = ("&", "*", "!")


def in_document(fix: Fix, embedded: EmbeddedConfig) -> Fix | None:
    """The fix with the document's paths in place of the config's; None where one of them has no place there."""
    changes: list[Change] = []
    for change in fix.changes:
        at = _place(embedded, change.at)
        if at is None:
            return None
        if isinstance(change, MoveKey):
            to = _place(embedded, change.to)
            if to is None:
                return None
            changes.append(MoveKey(at, to))
        elif isinstance(change, RenameKey):
            if at != change.at and len(change.at) == 1:
                return None  # the other tool's own name
            changes.append(RenameKey(at, change.name))
        else:
            changes.append(change._replace(at=at))
    return fix._replace(changes=tuple(changes))


def _place(embedded: EmbeddedConfig, path: Path) -> Path | None:
    """Where in the document a path of the config is, or could be added."""
    if path in embedded.filled_in:
        return None  # "auto" stands there, and the framework will not leave it
    if not embedded.base:
        return embedded.locate(path)
    # Accelerate's own names: only those that the file holds are known, and each is a single value.
    return embedded.places.get(path)


def text_fix(document: Document, fix: Fix) -> TextFix | None:
    """The edits that make exactly the fix's changes; None where the text can't be changed so.

    A text with any problem is not edited: what can't be read may be a template, and means more than we know.
    """
    if document.problems or not isinstance(document.value, dict):
        return None
    pieces, current = Pieces(document.text), document
    try:
        for change in fix.changes:
            for step in _steps(current, change):
                wanted = changed(current.value, step.change)
                edits = _edits(current, step.change, step.written)
                if edits is None:
                    return None
                pieces.apply(edits)
                current = _read_again(document, pieces.text)
                if not holds_exactly(current, wanted, document):
                    return None
    except NotApplicable:
        return None
    return TextFix(fix.title, pieces.edits(), fix.is_safe, fix.changes)


def holds_exactly(document: Document, wanted: Any, before: Document) -> bool:
    """Whether a changed document holds these values, without a problem, for every reader that could read it before."""
    return (
        not document.problems and is_same(document.value, wanted) and (_is_strict(document) or not _is_strict(before))
    )


def _is_strict(document: Document) -> bool:
    """Whether Python's json reads it too; the byte order mark, which it refuses, is no fix's doing."""
    return is_strict_json(document.text.removeprefix(BYTE_ORDER_MARK))


def _read_again(document: Document, text: str) -> Document:
    return read_text(text, filename=document.filename, syntax=document.syntax)


# ---------------------------------------------------------------------------------------------------------- one change


class _Step(NamedTuple):
    """A change that one look at the text can make; `written` is how a moved value stood where it comes from."""

    change: SetValue | RemoveKey | RenameKey
    written: str | None = None


def _steps(document: Document, change: Change) -> list[_Step]:
    if not isinstance(change, MoveKey):
        return [_Step(change)]
    value, span = value_at(document.value, change.at, NOTHING), document.value_span(change.at)
    if value is NOTHING or span is None or value_at(document.value, change.to, NOTHING) is not NOTHING:
        raise NotApplicable
    written = document.text[span.start : span.end]
    if len(written.splitlines()) > 1:
        # Its lines would have to be indented anew, in every syntax by other rules.
        raise NotApplicable
    return [_Step(SetValue(change.to, value), written), _Step(RemoveKey(change.at))]


def _edits(document: Document, change: SetValue | RemoveKey | RenameKey, written: str | None) -> list[TextEdit] | None:
    if isinstance(change, RenameKey):
        return _renamed(document, change)
    if isinstance(change, RemoveKey):
        in_braces = _is_in_braces(document, change.at[:-1])
        return braces.removed(document, change.at) if in_braces else blocks.removed(document, change.at)
    if value_at(document.value, change.at, NOTHING) is not NOTHING:
        return _replaced(document, change)
    # The deepest object that is there gets what is missing of the path, as one new member.
    length = 1
    while value_at(document.value, change.at[:length], NOTHING) is not NOTHING:
        length += 1
    value = change.value
    for part in reversed(change.at[length:]):
        value = {part: value}
    if written is not None and length < len(change.at):
        return None
    added = braces.added if _is_in_braces(document, change.at[: length - 1]) else blocks.added
    return added(document, change.at[:length], value, written)


def _is_in_braces(document: Document, path: Path) -> bool:
    if document.syntax is not Syntax.YAML:
        return True
    span = document.value_span(path)
    return span is not None and document.text[span.start : span.start + 1] == "{"


def _renamed(document: Document, change: RenameKey) -> list[TextEdit] | None:
    span = document.key_span(change.at)
    if span is None:
        return None
    quote = document.text[span.start]
    if document.syntax is Syntax.YAML and quote in _ANCHOR_ALIAS_TAG:
        return None
    return [TextEdit(span.start, span.end, written_key(change.name, quote if quote in "\"'" else ""))]


def _replaced(document: Document, change: SetValue) -> list[TextEdit] | None:
    text, span = document.text, document.value_span(change.at)
    if span is None:
        return None
    old = text[span.start : span.end]
    if document.syntax is Syntax.YAML and (old.startswith(_ANCHOR_ALIAS_TAG) or len(old.splitlines()) > 1):
        return None
    if isinstance(change.value, dict | list):
        new = written_value(change.value, _style_of_a_new_value(document, change.at))
    else:
        was_string = isinstance(value_at(document.value, change.at), str)
        new = written_scalar(change.value, document.syntax, like=old if was_string else None)
    if not old:
        new = f" {new}"  # a key of YAML without a value
    elif document.syntax is Syntax.HJSON and new[0] not in "\"'{[" and not _ENDS_A_WORD.match(text, span.end):
        new = f"{new},"
    return [TextEdit(span.start, span.end, new)]


def _style_of_a_new_value(document: Document, path: Path) -> Style:
    key = document.key_span(path)
    quote = document.text[key.start] if key is not None else '"'
    return Style(syntax=document.syntax, key_quote=quote if quote in "\"'" else "")
