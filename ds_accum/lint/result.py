"""What one run of the linter found: every document with its diagnostics, and the launches that it was judged for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ds_accum.config.document import Document
from ds_accum.config.launch import Launch
from ds_accum.config.schema import Version
from ds_accum.lint.diagnostic import Diagnostic, Severity
from ds_accum.lint.linter import lint_document
from ds_accum.lint.targets import Target

__all__ = ["FileResult", "LintResult", "judge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult:
    """One document, the launches that it was judged for, and what was found, in the order of the text.

    `suppressed` is what was found and is not shown: the file itself says why, or a baseline knows it. `fail_on` is the
    mildest severity that makes the linter fail, None if nothing does. `has_excerpts`: whether a report may show the
    text around a finding.
    """

    document: Document
    launches: tuple[Launch, ...]
    diagnostics: tuple[Diagnostic, ...]
    suppressed: tuple[Diagnostic, ...] = ()
    fail_on: Severity | None = Severity.ERROR
    has_excerpts: bool = True

    def fails_on(self, diagnostic: Diagnostic) -> bool:
        """Whether this finding alone makes the linter fail."""
        return self.fail_on is not None and diagnostic.severity.rank >= self.fail_on.rank

    @property
    def world_sizes(self) -> tuple[int, ...]:
        """The world sizes of the launches, ascending; empty if none is known."""
        return tuple(sorted({launch.world_size for launch in self.launches if launch.world_size is not None}))


@dataclass(frozen=True, slots=True, kw_only=True)
class LintResult:
    """What a reporter turns into text.

    `version` is the DeepSpeed release that was asked, `version_source` why that one, such as "installed".
    """

    files: tuple[FileResult, ...]
    version: Version
    version_source: str

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """All of them, file by file."""
        return [diagnostic for file in self.files for diagnostic in file.diagnostics]

    @property
    def world_sizes(self) -> tuple[int, ...]:
        """The world sizes that any file was judged for, ascending."""
        return tuple(sorted({size for file in self.files for size in file.world_sizes}))

    def count(self, severity: Severity) -> int:
        return sum(diagnostic.severity is severity for diagnostic in self.diagnostics)

    def reaches(self, severity: Severity) -> bool:
        """Whether anything was found that is at least as bad."""
        return any(diagnostic.severity.rank >= severity.rank for diagnostic in self.diagnostics)


def judge(target: Target, launches: Sequence[Launch]) -> FileResult:
    """Lints one target for these launches, completed by what it knows. Raises LayoutError as `Target.launches`."""
    completed = target.launches(launches)
    diagnostics = lint_document(target.document, launches=completed, origin=target.origin)
    return FileResult(document=target.document, launches=tuple(completed), diagnostics=tuple(diagnostics))
