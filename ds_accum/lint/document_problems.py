"""The problems that reading a document left behind, as findings of the rules that own their kinds."""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.document import Problem, ProblemKind
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding


def problems_of(context: LintContext, *kinds: ProblemKind) -> Iterator[Problem]:
    """The document's problems of these kinds, in the order of the text."""
    return (problem for problem in context.document.problems if problem.kind in kinds)


def findings_of(context: LintContext, *kinds: ProblemKind) -> Iterator[Finding]:
    """A finding for each problem of these kinds, exactly where the reader stopped."""
    for problem in problems_of(context, *kinds):
        yield Finding(at=problem.path or (), message=problem.message, help=problem.help, span=problem.span)
