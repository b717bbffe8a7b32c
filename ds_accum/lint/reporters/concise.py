"""For editors, problem matchers and grep: one line a finding, nothing else.

    ds_config.json:2:23: DSA101 [error] train_batch_size 256 (line 2) is not micro batch 8 (line 3) x ...

The sentence is the same as in the full report; line and column count from 1. No colour, and nothing unprintable.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.wording import printable
from ds_accum.lint.reporters.terminal import Terminal, inert
from ds_accum.lint.result import LintResult

__all__ = ["report"]


def report(result: LintResult, terminal: Terminal) -> Iterator[str]:  # noqa: ARG001 - every reporter is called alike
    """One line a finding; no text at all for clean files."""
    for item in result.diagnostics:
        place = f"{item.filename}:{item.start.line}:{item.start.column}"
        line = printable(f"{place}: {item.code} [{item.severity.value}] {item.message}")
        yield f"{inert(line)}\n"
