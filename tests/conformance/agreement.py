"""Does the linter agree with DeepSpeed about a config and a launch? The judge of all conformance tests.

    comparison = compare_at_load(data, launch, folder)
    comparison.disagreement        # None, or "missed", "false alarm", "rule failed"
    print(comparison)              # who says what
    disagreement_on_running(diagnostics, outcome)    # the same, about a start and a step with real ranks

At load they must agree exactly: DeepSpeed refuses if and only if the linter has an error that says so. Nothing that is
unknown to the linter has a say at that point.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deepspeed_load import Verdict, load_file
from deepspeed_start import Outcome
from this_machine import why_only_here

from ds_accum.config.document import read_bytes
from ds_accum.config.launch import Launch
from ds_accum.lint.diagnostic import Diagnostic, Proof, Severity, When
from ds_accum.lint.linter import RULE_FAILED, lint_document
from ds_accum.lint.rules import RULES

Kind = Literal["missed", "false alarm", "rule failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What DeepSpeed and the linter say about loading one config for one launch."""

    data: bytes
    launch: Launch
    verdict: Verdict
    diagnostics: tuple[Diagnostic, ...]

    @property
    def disagreement(self) -> Kind | None:
        """None where they agree. What this machine alone refuses, the linter need not know."""
        claims = certain(self.diagnostics, When.LOAD)
        if any(item.code == RULE_FAILED for item in self.diagnostics):
            return "rule failed"
        if self.verdict.error is None:
            return "false alarm" if claims else None
        if self.verdict.when is When.START:
            claims += certain(self.diagnostics, When.START)
        return "missed" if not claims and not why_only_here(self.verdict.error) else None

    @property
    def signature(self) -> tuple[str, ...]:
        """What two disagreements with the same cause have in common: DeepSpeed's words, or the codes that are wrong."""
        if self.disagreement == "missed":
            words = re.sub(r"'[^']*'|[-\d.]+", "_", self.verdict.error or "")
            return ("missed", words[:80])
        if self.disagreement == "rule failed":
            return ("rule failed", *sorted({item.message for item in self.diagnostics if item.code == RULE_FAILED}))
        return (str(self.disagreement), *sorted({item.code for item in certain(self.diagnostics, When.LOAD)}))

    def __str__(self) -> str:
        lines = [
            f"{self.disagreement or 'agreed'}: for {describe(self.launch)}",
            f"  DeepSpeed: {self.verdict.error or 'loads it'}",
            *(f"  lint: {describe_diagnostic(item)}" for item in self.diagnostics),
            *(f"  | {line}" for line in self.data.decode("utf-8", "backslashreplace").splitlines()),
        ]
        return "\n".join(lines)


def compare_at_load(data: bytes, launch: Launch, folder: Path) -> Comparison:
    """What both say about a config file with these bytes; `folder` holds the file meanwhile."""
    path = folder / "ds_config.json"
    path.write_bytes(data)
    return Comparison(
        data=data, launch=launch, verdict=load_file(path, launch), diagnostics=lint_bytes(data, launch, path.name)
    )


def lint_bytes(data: bytes, launch: Launch, filename: str = "ds_config.json") -> tuple[Diagnostic, ...]:
    return tuple(lint_document(read_bytes(data, filename=filename), launches=[launch]))


def certain(diagnostics: Iterable[Diagnostic], *whens: When) -> list[Diagnostic]:
    """The errors that claim a refusal of DeepSpeed's at one of these points; some rules are about another reader."""
    return [
        item
        for item in diagnostics
        if item.severity is Severity.ERROR and item.when in whens and _is_about_deepspeed(item.code)
    ]


def _is_about_deepspeed(code: str) -> bool:
    return RULES.by_code[code].proof is not Proof.OTHER_READER


def describe(launch: Launch) -> str:
    """`"world 8, tensor 2"`: what is special about a launch."""
    degrees = {
        name: getattr(launch, f"{name}_parallel_size")
        for name in ("tensor", "pipeline", "context", "sequence", "expert")
    }
    parts = [f"world {launch.world_size}", *(f"{name} {size}" for name, size in degrees.items() if size != 1)]
    if launch.client_optimizer is not None:
        parts.append("the script's own optimizer" if launch.client_optimizer else "no optimizer of the script's own")
    return ", ".join(parts)


def describe_diagnostic(item: Diagnostic) -> str:
    """`"DSA101 error (load) train_batch_size 100 is not ..."`."""
    return f"{item.code} {item.severity.value} ({item.when.value}) {item.message}"


# --- beyond loading ---------------------------------------------------------------------------------------------------


def disagreement_on_running(diagnostics: Iterable[Diagnostic], outcome: Outcome) -> Kind | None:
    """Whether the errors of a config fit what became of starting DeepSpeed with it and taking a step.

    Both must be about the same launch, with all known that the script passes. An error that claims a refusal at start
    is false where DeepSpeed starts, one that claims a crash at the first step where it takes one; whatever DeepSpeed
    dies of must be an error, claimed for that time or an earlier one.
    """
    diagnostics = list(diagnostics)
    if any(item.code == RULE_FAILED for item in diagnostics):
        return "rule failed"
    at_start = certain(diagnostics, When.LOAD, When.START)
    if outcome.refused_at_start:
        return "missed" if not at_start and not why_only_here(outcome.error) else None
    if at_start:
        return "false alarm"
    at_first_step = certain(diagnostics, When.FIRST_STEP)
    if outcome.failed:
        return "missed" if not at_first_step and not why_only_here(outcome.error) else None
    # Without an error, and not beyond the start: no step was asked for.
    return "false alarm" if at_first_step and outcome.reached == "first step" else None
