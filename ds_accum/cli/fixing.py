"""`ds-accum lint --fix` and `--diff`: every file's fixes are worked out first, and only then is anything written.

A file is replaced in one go, with its mode, through symbolic links: whoever reads it meanwhile reads the old text or
the new one. What is no file is not written; the text of standard input goes to standard output, fixed or not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from ds_accum.cli.files import replace_file, unwritable
from ds_accum.cli.messages import print_note
from ds_accum.errors import UsageError

if TYPE_CHECKING:
    from ds_accum.config.document import Document
    from ds_accum.lint.in_force import Judge
    from ds_accum.lint.result import LintResult
    from ds_accum.lint.targets import Target

__all__ = ["FixedTarget", "fix_targets", "print_diff", "result_of", "unified_diff", "write"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedTarget:
    """A target, the document that its fixes make of it, and how many findings they mended."""

    target: Target
    document: Document
    count: int = 0

    @property
    def is_changed(self) -> bool:
        return self.document.text != self.target.document.text


def fix_targets(targets: Iterable[Target], judge: Judge, *, unsafe: bool, color: str) -> list[FixedTarget]:
    """Each target with its fixes applied, in memory; says which are left alone, and why.

    Raises FixError where a fix turns out wrong.
    """
    return [_fixed(target, judge, unsafe, color) for target in targets]


def write(fixed: Sequence[FixedTarget], standard_input: BinaryIO | None) -> None:
    """Writes what is changed; `standard_input` must let itself be read again.

    Raises UsageError where a file can't be written, before the first is.
    """
    files = [(_writable(item), _bytes_of(item)) for item in fixed if item.is_changed and item.target.path is not None]
    for path, data in files:
        try:
            replace_file(path, data)
        except OSError as error:
            raise unwritable(path, error) from error
    for item in fixed:
        if item.target.is_standard_input and standard_input is not None:
            # What is not changed goes on as it came: it may be no text at all.
            standard_input.seek(0)
            click.echo(_bytes_of(item) if item.is_changed else standard_input.read(), nl=False)


def result_of(fixed: Sequence[FixedTarget], judge: Judge) -> LintResult:
    """What is left to find."""
    result = judge.result([replace(item.target, document=item.document) for item in fixed])
    files = tuple(replace(file, fixed=item.count) for file, item in zip(result.files, fixed, strict=True))
    return replace(result, files=files)


def print_diff(fixed: Iterable[FixedTarget]) -> bool:
    """What is changed, as a unified diff; whether there is anything."""
    changed = [item for item in fixed if item.is_changed]
    for item in changed:
        before = item.target.document
        click.echo(unified_diff(before.text, item.document.text, before.filename).encode("utf-8"), nl=False)
    return bool(changed)


def unified_diff(before: str, after: str, name: str) -> str:
    """The difference of two texts, as `patch` takes it."""
    from difflib import unified_diff as lines_of_diff

    from ds_accum.config.wording import printable

    lines = lines_of_diff(_lines(before), _lines(after), printable(name), printable(name))
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


# ----------------------------------------------------------------------------------------------------------- one target


def _fixed(target: Target, judge: Judge, unsafe: bool, color: str) -> FixedTarget:
    from ds_accum.lint.fixer import fix_document

    reason = _why_not_edited(target)
    if reason is not None:
        if judge(target).diagnostics:
            print_note(f"{target.document.filename} is not edited: {reason}", color=color)
        return FixedTarget(target=target, document=target.document)
    fixed = fix_document(
        target.document, lambda document: judge(replace(target, document=document)).diagnostics, unsafe=unsafe
    )
    return FixedTarget(target=target, document=fixed.document, count=fixed.count)


def _why_not_edited(target: Target) -> str | None:
    from ds_accum.config.references import leads_outside

    if target.origin.is_base64:
        return "a config in base64 has no file to write to"
    if target.document.problems:
        return "what can't be read without a problem may be a template, or mean something else"
    if target.path is None and not target.is_standard_input:
        return "only standard input was named"
    if target.path is not None and leads_outside(str(target.path)):
        return "it is a link to a file outside the project"
    return None


def _bytes_of(item: FixedTarget) -> bytes:
    return item.document.text.encode("utf-8")


# -------------------------------------------------------------------------------------------------------------- writing


def _writable(item: FixedTarget) -> Path:
    """The file behind a target's path; raises UsageError if it can't be written, or is not what was read any more."""
    assert item.target.path is not None, "only files are written"
    given, before = item.target.path, item.target.document.text.encode("utf-8")
    try:
        path = given.resolve(strict=True)
        # The superuser may write whatever is read-only; that somebody made it so counts all the same.
        if not path.stat().st_mode & 0o222 or not os.access(path, os.W_OK):
            raise UsageError(f"can't write {given}: the file is read-only")
        if not path.parent.stat().st_mode & 0o222 or not os.access(path.parent, os.W_OK):
            raise UsageError(f"can't write {given}: its folder is read-only")
        if path.read_bytes() != before:
            raise UsageError(f"can't write {given}: it was changed while it was read", remedy="run the command again")
    except OSError as error:
        raise unwritable(given, error) from error
    return path
