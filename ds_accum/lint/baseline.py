"""Findings that are known and stay for now, so that only new ones fail: `--write-baseline FILE`, `--baseline FILE`.

    {
      "version": 1,
      "findings": [
        {"file": "conf/ds.json", "code": "DSA101", "path": "train_batch_size", "fingerprint": "3f0c..."}
      ]
    }

`file` is relative to the baseline's folder; `path` is for the reader. What makes a finding the same is said in
`ds_accum.lint.fingerprint`. One finding a line, sorted, so that a difference is read line by line. A rule that failed
is never recorded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from ds_accum.errors import UsageError
from ds_accum.lint.diagnostic import Diagnostic
from ds_accum.lint.fingerprint import fingerprints
from ds_accum.lint.linter import RULE_FAILED
from ds_accum.lint.result import FileResult
from ds_accum.lint.wording import dotted

__all__ = ["Baseline", "Known", "baseline_text", "read_baseline"]

VERSION = 1

_REMEDY = "write it with --write-baseline"


class Known(NamedTuple):
    """One recorded finding."""

    file: str
    code: str
    path: str
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The recorded findings, and which of them a run has met again."""

    folder: FilePath
    known: frozenset[Known]
    _met: set[Known] = field(default_factory=set)
    _looked_at: set[tuple[str, str]] = field(default_factory=set)

    def without_known(self, result: FileResult, asked: Iterable[str]) -> FileResult:
        """A result whose known findings count as suppressed. `asked` are the codes of the rules that were asked."""
        new, known = [], []
        by_fingerprint = {(item.file, item.fingerprint): item for item in self.known}
        for item, entry in zip(result.diagnostics, _entries(result, self.folder), strict=True):
            recorded = by_fingerprint.get((entry.file, entry.fingerprint))
            if recorded is None or item.code == RULE_FAILED:
                new.append(item)
            else:
                self._met.add(recorded)
                known.append(item)
        name = _relative(result.document.filename, self.folder)
        self._looked_at.update((name, code) for code in asked)
        return replace(result, diagnostics=tuple(new), suppressed=(*result.suppressed, *known))

    def stale(self) -> list[Known]:
        """What was recorded and is found no more, in the files and by the rules of this run, or whose file is gone."""
        return sorted(
            item
            for item in self.known - self._met
            if (item.file, item.code) in self._looked_at or not (self.folder / item.file).exists()
        )


def read_baseline(path: str) -> Baseline:
    """Raises UsageError where there is none, or something else."""
    try:
        values = json.loads(FilePath(path).read_text(encoding="utf-8"))
        if not isinstance(values, dict) or values.get("version") != VERSION:
            raise UsageError(f"{path} is no baseline that this release of ds-accum reads", remedy=_REMEDY)
        known = frozenset(Known(*(_text(item, name) for name in Known._fields)) for item in values["findings"])
    except OSError as error:
        raise UsageError.because(f"can't read the baseline {path}", error, remedy=_REMEDY) from error
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path} is no baseline: {error}", remedy=_REMEDY) from error
    return Baseline(folder=FilePath(path).absolute().parent, known=known)


def baseline_text(results: Iterable[FileResult], path: str) -> tuple[str, int]:
    """The text of a baseline at `path` that knows everything found in these results, and how many findings that is."""
    folder = FilePath(path).absolute().parent
    entries = sorted({entry for result in results for entry in _entries(result, folder) if entry.code != RULE_FAILED})
    lines = ",\n".join(f"    {json.dumps(entry._asdict())}" for entry in entries)
    findings = f"[\n{lines}\n  ]" if entries else "[]"
    return f'{{\n  "version": {VERSION},\n  "findings": {findings}\n}}\n', len(entries)


def _entries(result: FileResult, folder: FilePath) -> Iterator[Known]:
    name = _relative(result.document.filename, folder)
    diagnostics: Sequence[Diagnostic] = result.diagnostics
    for item, fingerprint in zip(diagnostics, fingerprints(diagnostics, result.document), strict=True):
        yield Known(name, item.code, dotted(item.path), fingerprint)


def _relative(filename: str, folder: FilePath) -> str:
    if filename.startswith("<"):  # <stdin>, <base64>
        return filename
    return os.path.relpath(filename, folder).replace(os.sep, "/")


def _text(item: Any, name: str) -> str:
    value = item[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string")
    return value
