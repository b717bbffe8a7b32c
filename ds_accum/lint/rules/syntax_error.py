"""The file can't be read as a config at all.

DeepSpeed reads every config with Hjson, whatever the file's extension, and Hjson is lenient: comments, trailing commas,
unquoted keys and even missing root braces are fine. What it does refuse it reports late, on every rank, and often
with a useless place ("Bad key name (eof)").

The rest of the file is checked as far as it can be read.
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
        config='{\n  "train_batch_size": 8,\n  "zero_optimization": {"stage": 2,git l\n    "overlap_comm": true}\n}\n',
        reports=(
            Report(
                at="zero_optimization",
                message="expected a key or '}' after the value of \"stage\", found 'git l'",
            ),
        ),
    ),
)

GOOD = (Example(config="{\n  // Hjson\n  train_batch_size: 8,\n}\n"),)


def check(context: LintContext) -> Iterator[Finding]:
    yield from findings_of(context, ProblemKind.SYNTAX, ProblemKind.NUMBER, ProblemKind.TAG)


RULE = Rule(
    code="DSA001",
    name="syntax-error",
    summary="the file is not valid Hjson, JSON or YAML",
    rationale=__doc__,
    when=When.LOAD,
    needs="document",
    check=check,
    bad=BAD,
    good=GOOD,
)
