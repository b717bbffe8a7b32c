"""Does the linter agree with DeepSpeed about a config and a launch? The judge of all conformance tests.

    load_disagreement(text, launch, folder)    None, or who says what

At load they must agree exactly: DeepSpeed refuses if and only if the linter has an error that says so. Nothing that is
unknown to the linter has a say at that point.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deepspeed_load import Verdict, load_file
from ds_accum.config.accelerators import why_only_here
from ds_accum.config.document import read_bytes
from ds_accum.config.launch import Launch
from ds_accum.lint.diagnostic import Diagnostic, Severity, When
from ds_accum.lint.linter import RULE_FAILED, lint_document

__all__ = ["Disagreement", "certain", "lint_bytes", "load_disagreement", "short"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """One config about which the two do not say the same: DeepSpeed's exception (if any), the linter's findings."""

    kind: Literal["missed", "false alarm", "rule failed"]
    launch: Launch
    text: str
    deepspeed: str | None
    findings: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.kind}: for {describe(self.launch)}",
            f"  DeepSpeed: {self.deepspeed or 'accepts it'}",
            *(f"  lint: {finding}" for finding in self.findings or ("no finding",)),
            *(f"  | {line}" for line in self.text.splitlines()),
        ]
        return "\n".join(lines)


def load_disagreement(text: str | bytes, launch: Launch, folder: Path) -> Disagreement | None:
    """Whether DeepSpeed refuses to load a config exactly where the linter says so. `folder` holds the file meanwhile."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    path = folder / "ds_config.json"
    path.write_bytes(data)
    diagnostics = lint_bytes(data, launch)
    return judge_load(diagnostics, load_file(path, launch), launch, data)


def judge_load(
    diagnostics: list[Diagnostic], verdict: Verdict, launch: Launch, data: bytes
) -> Disagreement | None:
    errors = certain(diagnostics, When.LOAD)
    kind: Literal["missed", "false alarm", "rule failed"]
    if any(item.code == RULE_FAILED for item in diagnostics):
        kind = "rule failed"
    elif verdict.refused and not errors:
        if why_only_here(verdict.error or "", "cpu") is not None and launch.accelerator != "cpu":
            return None
        kind = "missed"
    elif errors and not verdict.refused:
        kind = "false alarm"
    else:
        return None
    return Disagreement(
        kind=kind,
        launch=launch,
        text=data.decode("utf-8", "backslashreplace"),
        deepspeed=verdict.error,
        findings=tuple(short(item) for item in diagnostics),
    )


def lint_bytes(data: bytes, launch: Launch, *, filename: str = "ds_config.json") -> list[Diagnostic]:
    return lint_document(read_bytes(data, filename=filename), launches=[launch])


def certain(diagnostics: Iterable[Diagnostic], *whens: When) -> list[Diagnostic]:
    """The errors that claim a refusal at one of these points."""
    return [item for item in diagnostics if item.severity is Severity.ERROR and item.when in whens]


def short(item: Diagnostic) -> str:
    return f"{item.code} {item.severity.value} ({item.when.value}) {item.message}"


def describe(launch: Launch) -> str:
    """`"world 8, tensor 2"`: what is special about a launch."""
    degrees = {
        name: getattr(launch, f"{name}_parallel_size") for name in ("tensor", "pipeline", "context", "sequence", "expert")
    }
    parts = [f"world {launch.world_size}", *(f"{name} {size}" for name, size in degrees.items() if size != 1)]
    if launch.client_optimizer is not None:
        parts.append("the script's own optimizer" if launch.client_optimizer else "no optimizer of the script's own")
    return ", ".join(parts)
