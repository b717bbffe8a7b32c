"""The file is not UTF-8 text, or larger or deeper than any config.

DeepSpeed opens a config as text in the machine's own encoding and dies with a `UnicodeDecodeError` that names a byte
but no file; at a few hundred levels of nesting its parser runs out of stack. A file past the limits of this linter is
not read further: real configs have some 1,500 characters and six levels.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.document import ProblemKind
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.document_problems import findings_of
from ds_accum.lint.rule import Example, Report, Rule

BAD = (
    Example(
        config='{"train_batch_size": 8, "deep": ' + "[" * 500 + "]" * 500 + "}",
        reports=(Report(at="", message="more than 100 objects and lists inside each other"),),
    ),
)

GOOD = (Example(config='{"train_batch_size": 8, "comment": "naïve, 日本語"}'),)


def check(context: LintContext) -> Iterator[Finding]:
    yield from findings_of(
        context,
        ProblemKind.ENCODING,
        ProblemKind.TOO_LARGE,
        ProblemKind.TOO_DEEP,
        ProblemKind.TOO_MANY_ALIASES,
    )


RULE = Rule(
    code="DSA003",
    name="unreadable-file",
    summary="the file is not UTF-8 text, or larger or deeper than any config",
    rationale=__doc__,
    when=When.LOAD,
    needs="document",
    check=check,
    bad=BAD,
    good=GOOD,
)
