"""`--write-baseline` and `--baseline`: all they say goes to standard error, where it spoils no report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ds_accum.cli.files import write_file
from ds_accum.cli.messages import print_note

if TYPE_CHECKING:
    from ds_accum.lint.in_force import Judge
    from ds_accum.lint.result import LintResult
    from ds_accum.lint.targets import Target

__all__ = ["record", "without_known"]

# A long list of what was mended is not read.
_MOST_SHOWN = 10


def record(result: LintResult, path: str, baseline: str | None, *, color: str) -> None:
    """Writes a baseline of everything that was found."""
    if baseline is not None:
        raise click.UsageError("--write-baseline records everything that is found: leave --baseline out.")
    from ds_accum.lint.baseline import baseline_text

    text, count = baseline_text(result.files, path)
    write_file(Path(path), text)
    print_note(f"{path} now knows {count:,} finding{'' if count == 1 else 's'}", color=color)


def without_known(result: LintResult, path: str, judge: Judge, targets: Sequence[Target], *, color: str) -> LintResult:
    """The result without what the baseline knows; says what it knows in vain."""
    from ds_accum.lint.baseline import read_baseline

    baseline = read_baseline(path)
    files = tuple(
        baseline.without_known(file, {rule.code for rule in judge.in_force(target).rules})
        for file, target in zip(result.files, targets, strict=True)
    )
    stale = baseline.stale()
    for item in stale[:_MOST_SHOWN]:
        at = f" at {item.path}" if item.path else ""
        print_note(f"{path} knows {item.code}{at} of {item.file}, which is found no more", color=color)
    if len(stale) > _MOST_SHOWN:
        print_note(f"{path} knows {len(stale) - _MOST_SHOWN:,} more that are found no more", color=color)
    return replace(result, files=files)
