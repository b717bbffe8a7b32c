"""All fixes of a document: those that do not touch each other, then a look at the result, until none is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ds_accum.config.document import Document, Path, read_text
from ds_accum.errors import FixError
from ds_accum.lint.diagnostic import Diagnostic
from ds_accum.lint.fix import Change, MoveKey, RenameKey, TextEdit
from ds_accum.lint.fixer.edits import holds_exactly
from ds_accum.lint.fixer.intended import changed
from ds_accum.lint.fixer.pieces import edited

__all__ = ["Fixed", "apart", "fix_document"]

# Each pass mends at least one finding. What a text with hundreds of them has left after so many, another run mends.
_MOST_PASSES = 100
_REMEDY = "this is a bug of ds-accum, not of the config: please report it with the file; nothing was written"

Lint = Callable[[Document], Sequence[Diagnostic]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """A document after its fixes: what is left to find in it, and how many findings were mended."""

    document: Document
    diagnostics: tuple[Diagnostic, ...]
    count: int


def fix_document(document: Document, lint: Lint, *, unsafe: bool = False) -> Fixed:
    """The document with its safe fixes applied, or with all of them; `lint` judges it before each pass and at the end.

    Raises FixError where a fix turns out wrong: it leaves its finding, changes more than it says, or undoes another.
    """
    count = 0
    diagnostics = tuple(lint(document))
    texts = {document.text}
    for _ in range(_MOST_PASSES):
        chosen = apart(item for item in diagnostics if _is_wanted(item, unsafe))
        if not chosen:
            break
        before, document = document, _applied(document, chosen)
        if document.text in texts:
            message = f"the fixes of {document.filename} undo each other: {_titles(chosen)}"
            raise FixError(message, remedy=_REMEDY)
        texts.add(document.text)
        left = tuple(lint(document))
        for stubborn in _still_there(chosen, left):
            _check_alone(before, stubborn, lint)
        diagnostics, count = left, count + len(chosen)
    return Fixed(document=document, diagnostics=diagnostics, count=count)


def _is_wanted(diagnostic: Diagnostic, unsafe: bool) -> bool:
    return diagnostic.fix is not None and (unsafe or diagnostic.fix.is_safe)


def apart(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Those whose fixes can be applied at once: neither their edits touch each other nor the keys that they change."""
    chosen: list[Diagnostic] = []
    edits: list[TextEdit] = []
    paths: list[Path] = []
    for diagnostic in diagnostics:
        fix = diagnostic.fix
        assert fix is not None, "only those with a fix are asked for"
        changed_paths = [path for change in fix.changes for path in _paths_of(change)]
        if any(_touch(edit, other) for edit in fix.edits for other in edits):
            continue
        if any(_is_inside(path, other) for path in changed_paths for other in paths):
            continue
        chosen.append(diagnostic)
        edits += fix.edits
        paths += changed_paths
    return chosen


def _touch(first: TextEdit, second: TextEdit) -> bool:
    return first.start <= second.end and second.start <= first.end


def _paths_of(change: Change) -> Iterator[Path]:
    """The keys that a change is about: what they hold before it, and after."""
    yield change.at
    if isinstance(change, RenameKey):
        yield (*change.at[:-1], change.name)
    elif isinstance(change, MoveKey):
        yield change.to


def _is_inside(first: Path, second: Path) -> bool:
    """Whether one of two paths leads to the other, or below it."""
    length = min(len(first), len(second))
    return first[:length] == second[:length]


def _applied(document: Document, diagnostics: Sequence[Diagnostic]) -> Document:
    wanted = document.value
    edits: list[TextEdit] = []
    for diagnostic in diagnostics:
        assert diagnostic.fix is not None, "only those with a fix are asked for"
        edits += diagnostic.fix.edits
        for change in diagnostic.fix.changes:
            wanted = changed(wanted, change)
    after = read_text(edited(document.text, sorted(edits)), filename=document.filename, syntax=document.syntax)
    if not holds_exactly(after, wanted, document):
        message = f"the fixes of {document.filename} change more than they say: {_titles(diagnostics)}"
        raise FixError(message, remedy=_REMEDY)
    return after


def _still_there(fixed: Sequence[Diagnostic], left: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Those of the findings that were fixed that are found again: at the same place, in the same words or with the same
    fix. Another one there has another cause, which was hidden, or is mended next."""
    return [item for item in fixed if any(_is_the_same(item, other) for other in left)]


def _is_the_same(first: Diagnostic, second: Diagnostic) -> bool:
    if (first.code, first.path) != (second.code, second.path):
        return False
    changes = [None if item.fix is None else item.fix.changes for item in (first, second)]
    return first.message == second.message or changes[0] == changes[1]


def _check_alone(document: Document, fixed: Diagnostic, lint: Lint) -> None:
    """Another fix of the same pass may have brought the same finding for another reason: this one alone must not."""
    if _still_there([fixed], lint(_applied(document, [fixed]))):
        message = f"a fix of {document.filename} leaves what it is to mend, {fixed.code}: {_titles([fixed])}"
        raise FixError(message, remedy=_REMEDY)


def _titles(diagnostics: Iterable[Diagnostic]) -> str:
    return "; ".join(item.fix.title for item in diagnostics if item.fix is not None)
