"""The problems of one reading of a YAML text: limited in number, and in words for somebody who knows no parser."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ds_accum.config.document import Problem, ProblemKind, Span
from ds_accum.config.wording import token_end

if TYPE_CHECKING:
    import yaml

    from ds_accum.config.document import Limits

__all__ = ["YamlProblems", "usual_cause"]

_TOO_DEEP_FOR_LIBYAML = "exceeded maximum nesting depth"
_IN_PLAIN_WORDS = {
    "<block end>": "the end of the block",
    "'<block end>'": "the end of the block",
    "'<scalar>'": "a value",
    "'<block mapping start>'": "a deeper indented block",
    "'<block sequence start>'": "a deeper indented list",
    "<document start>": "the start of a document",
    "'<document start>'": "the start of another document",
    "'<stream end>'": "the end of the text",
}
_USUAL_CAUSES = {
    "'\\t' that cannot start any token": "indent with spaces: YAML takes no tabs there",
    "mapping values are not allowed": "check the indentation; a value that contains ': ' must be in quotes",
    "could not find expected ':'": "a key is followed by a colon and a blank",
    "expected the end of the block": "check the indentation of this line and the ones before it",
    "expected a single document": "a config is one document: remove the --- and what follows it",
    "undefined alias": "an anchor (&name) comes before its alias (*name); quote a value that begins with *",
}


def usual_cause(message: str) -> str | None:
    """What mostly leads to this message of PyYAML's, as a remedy; None where there is no saying."""
    return next((cause for sign, cause in _USUAL_CAUSES.items() if sign in message), None)


@dataclass(slots=True)
class YamlProblems:
    """What was wrong with a text, at most `limits.problems` of a kind."""

    text: str
    limits: Limits
    found: list[Problem] = field(default_factory=list)

    def report(
        self, kind: ProblemKind, message: str, span: Span, remedy: str | None = None, related: tuple[Span, ...] = ()
    ) -> None:
        """Keep a problem, unless there are enough of its kind."""
        if self.is_wanted(kind):
            self.found.append(Problem(kind=kind, message=message, span=span, help=remedy, related=related))

    def is_wanted(self, kind: ProblemKind) -> bool:
        """Whether one more problem of this kind would be kept."""
        return sum(problem.kind is kind for problem in self.found) < self.limits.problems

    def too_deep(self, start: int) -> None:
        """What begins at `start` is nested deeper than is read."""
        message = f"more than {self.limits.depth} mappings and lists inside each other"
        self.report(ProblemKind.TOO_DEEP, message, Span(start, start + 1))

    def refused(self, error: yaml.YAMLError) -> None:
        """PyYAML raised this `YAMLError`, with marks that say where or without."""
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        start = min(mark.index if mark is not None else 0, len(self.text))
        message = getattr(error, "problem", None) or str(error)
        if _TOO_DEEP_FOR_LIBYAML in message:
            self.too_deep(start)
            return
        for jargon, words in _IN_PLAIN_WORDS.items():
            message = message.replace(jargon, words)
        context = getattr(error, "context_mark", None)
        if context is not None and context.line != getattr(mark, "line", None):
            message += f", in what begins at line {context.line + 1}"
        self.report(ProblemKind.SYNTAX, message, Span(start, token_end(self.text, start)), usual_cause(message))

    def line(self, offset: int) -> int:
        """The line of `offset`, counted from 1."""
        return self.text.count("\n", 0, offset) + 1
