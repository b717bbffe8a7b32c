"""How often each rule found something, the most frequent first.

    12  DSA101  error    batch-size-mismatch
     3  DSA701  error    unknown-key

With `--statistics`, in place of the findings. A rule whose findings differ in severity is counted once for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ds_accum.lint.reporters.terminal import Terminal
from ds_accum.lint.result import LintResult

__all__ = ["report"]


def report(result: LintResult, terminal: Terminal) -> Iterator[str]:
    """One line a rule; no text at all for clean files."""
    counts = Counter((item.code, item.severity, item.name) for item in result.diagnostics)
    width = len(str(max(counts.values(), default=0)))
    for (code, severity, name), count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0][0])):
        yield f"{count:{width}}  {code}  {terminal.paint_as(severity, f'{severity.value:7}')}  {name}\n"
