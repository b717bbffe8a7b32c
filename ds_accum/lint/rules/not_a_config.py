"""The file holds something else than an object of settings.

A list, a string or a number can't be a config. DeepSpeed fails on it with an error about a missing attribute, or, for a
mistyped path, about base64.
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
        config='[{"train_batch_size": 8}]',
        reports=(Report(at="", message="a config must be an object of keys and values, found a list"),),
    ),
)

GOOD = (Example(config='{"train_batch_size": 8}'),)


def check(context: LintContext) -> Iterator[Finding]:
    yield from findings_of(context, ProblemKind.NOT_AN_OBJECT, ProblemKind.EMPTY)


RULE = Rule(
    code="DSA004",
    name="not-a-config",
    summary="the file holds something else than an object of settings",
    rationale=__doc__,
    when=When.LOAD,
    needs="document",
    check=check,
    bad=BAD,
    good=GOOD,
)
