"""What one run of the linter found: every document with its diagnostics, and the launches that it was judged for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ds_accum.config.document import Document
from ds_accum.config.launch import Launch
from ds_accum.config.references import leads_outside
from ds_accum.config.schema import Version
from ds_accum.lint.diagnostic import Diagnostic, Severity
from ds_accum.lint.inline import NOTHING, read_inline
from ds_accum.lint.linter import examine
from ds_accum.lint.rule import Rule
from ds_accum.lint.rules import RULES
from ds_accum.lint.targets import Target

__all__ = ["FileResult", "LintResult", "judge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult:
    """One document, the launches that it was judged for, and what was found, in the order of the text.

    `suppressed` is what was found and is not shown: the file itself says why, or a baseline knows it. `fail_on` is the
    mildest severity that makes the linter fail, None if nothing does. `has_excerpts`: whether a report may show the
    text around a finding.
    `fixed` is the number of findings that were fixed before: the document is the one that came of it.
    """

    document: Document
    launches: tuple[Launch, ...]
    diagnostics: tuple[Diagnostic, ...]
    suppressed: tuple[Diagnostic, ...] = ()
    fail_on: Severity | None = Severity.ERROR
    has_excerpts: bool = True
    fixed: int = 0

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
    `has_summary`: whether a report for people ends with one.
    """

    files: tuple[FileResult, ...]
    version: Version
    version_source: str
    has_summary: bool = True

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

    def count_fixable(self, *, is_safe: bool) -> int:
        """How many findings have a fix that is safe, or one that is not."""
        return sum(item.fix is not None and item.fix.is_safe is is_safe for item in self.diagnostics)

    @property
    def fails(self) -> bool:
        """Whether any file has a finding that makes the linter fail."""
        return any(file.fails_on(item) for file in self.files for item in file.diagnostics)

    def only_failing(self) -> LintResult:
        """Only what makes the linter fail, and no summary."""
        files = (
            replace(file, diagnostics=tuple(item for item in file.diagnostics if file.fails_on(item)))
            for file in self.files
        )
        return replace(self, files=tuple(files), has_summary=False)


def judge(
    target: Target,
    launches: Sequence[Launch],
    *,
    rules: Sequence[Rule] = RULES,
    inline: bool = True,
    fail_on: Severity | None = Severity.ERROR,
) -> FileResult:
    """Lints one target for these launches, completed by what it knows. Raises LayoutError as `Target.launches`.

    `inline` as in `ds_accum.lint.linter`.
    """
    settings = read_inline(target.document) if inline else NOTHING
    completed = target.launches([settings.complete(launch, target.document) for launch in launches])
    found = examine(target.document, launches=completed, rules=rules, origin=target.origin, inline=inline)
    return FileResult(
        document=target.document,
        launches=tuple(completed),
        diagnostics=found.found,
        suppressed=found.suppressed,
        fail_on=fail_on,
        # What was found decides whether the question is worth its price.
        has_excerpts=not found.found or not leads_outside(target.document.filename),
    )
