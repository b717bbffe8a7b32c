"""What mends a finding: changes to a config's keys and values (`Fix`), and the same as edits of a text (`TextFix`).

    Finding(at=path, fix=Fix(title="rename the key", changes=(RenameKey(path, "stage"),), is_safe=True))

A rule speaks of paths and values only; where these stand and how they are written is found out by the fixer. A fix is
safe only if training can't change by it, or could not have started without it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from ds_accum.config.document import Path

__all__ = ["Change", "Fix", "MoveKey", "RemoveKey", "RenameKey", "SetValue", "TextEdit", "TextFix"]


class SetValue(NamedTuple):
    """The value at a path, in place of the one that is there; where there is none, a new last key of its parent.

    `value` is anything that JSON can say. Parents that are missing are added with it.
    """

    at: Path
    value: Any


class RemoveKey(NamedTuple):
    """A key and its value go."""

    at: Path


class RenameKey(NamedTuple):
    """The key at a path is called `name`; its value stays as it is written."""

    at: Path
    name: str


class MoveKey(NamedTuple):
    """A key and its value, as it is written, move to another path; parents that are missing are added."""

    at: Path
    to: Path


Change: TypeAlias = SetValue | RemoveKey | RenameKey | MoveKey


class Fix(NamedTuple):
    """What to change in the config, as a rule says it. `title` is an imperative: "set train_batch_size to 256"."""

    title: str
    changes: tuple[Change, ...]
    is_safe: bool = False


class TextEdit(NamedTuple):
    """The characters from offset `start` to offset `end` become `text`."""

    start: int
    end: int
    text: str


class TextFix(NamedTuple):
    """A fix as edits of the document's text, in its order and apart from each other.

    `changes` are the same in paths of the document: what the edits must come to, and nothing else.
    """

    title: str
    edits: tuple[TextEdit, ...]
    is_safe: bool
    changes: tuple[Change, ...] = ()
