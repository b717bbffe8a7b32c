"""What a rule is: why, a bad and a good example, a check, and how it is known to be right."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from ds_accum.config.launch import Launch
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.origin import PLAIN_TEXT, Origin

if TYPE_CHECKING:
    from ds_accum.lint.context import LintContext


class Report(NamedTuple):
    """A finding as an example expects it: `at` is the dotted path, `message` the whole sentence."""

    at: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A config with its launch, and what the rule reports for it (nothing, if it is a good one).

    `fixed` is the text after everything that the rule can fix, safe or not, is fixed; None where it fixes nothing.

    `deepspeed` says what the proof is run with: "config" gives it to DeepSpeed as a file; None where the installed
    DeepSpeed can't show it (the rule's proof is then another release or the source, or the example is about a reader
    other than DeepSpeed).
    """

    config: str
    launch: Launch = field(default_factory=lambda: Launch(world_size=1))
    origin: Origin = PLAIN_TEXT
    reports: tuple[Report, ...] = ()
    deepspeed: Literal["config"] | None = "config"
    fixed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One kind of mistake. `name` reads after "allow": allow batch-size-mismatch.

    `rationale` is the rule's module docstring. `needs` is "document" for a rule about the text itself, which runs
    even if the text holds no config, "review" for one about the document's suppressions, which runs last and once,
    "config" for all others. `noticed_by` is who would have noticed the mistake at the moment `when`.
    """

    code: str
    name: str
    summary: str
    rationale: str
    when: When
    check: Callable[[LintContext], Iterable[Finding]]
    bad: tuple[Example, ...]
    good: tuple[Example, ...]
    severity: Severity = Severity.ERROR
    proof: Proof = Proof.RUN
    needs: Literal["document", "config", "review"] = "config"
    references: tuple[str, ...] = ()
    noticed_by: str = "DeepSpeed"

    def __repr__(self) -> str:
        """The name: all of a rule is pages, and RULES is a default value that `help` prints."""
        return f"<Rule {self.code} {self.name}>"
