"""Each variant's config is linted before anything is started: an error stops that variant, and that variant alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from ds_accum.compare.result import VariantResult
from ds_accum.compare.spec import RunSpec, Variant
from ds_accum.config.launch import Launch
from ds_accum.config.schema import Version
from ds_accum.lint import Diagnostic, Severity, lint_text

__all__ = ["Linted", "config_text", "lint_variants"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Linted:
    """A variant, its config as text (empty for what is not DeepSpeed), and what the linter says about that text."""

    variant: Variant
    text: str
    findings: tuple[Diagnostic, ...]

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        return tuple(item for item in self.findings if item.severity is Severity.ERROR)

    def refusal(self) -> VariantResult | None:
        """Why the variant is not run, None where it is."""
        if not self.errors:
            return None
        return VariantResult(name=self.variant.name, status="refused", failure="; ".join(map(said, self.errors)))


def lint_variants(spec: RunSpec, version: Version) -> list[Linted]:
    """All variants in their order, linted for the launch that would run them."""
    return [_lint(variant, spec, version) for variant in spec.variants]


def config_text(variant: Variant) -> str:
    """The config as it is linted, printed and given to DeepSpeed."""
    return json.dumps(dict(variant.config), indent=2)


def said(item: Diagnostic) -> str:
    """A finding as one sentence, with its remedy."""
    return f"{item.code} {item.message}" + (f" ({item.help})" if item.help else "")


def _lint(variant: Variant, spec: RunSpec, version: Version) -> Linted:
    if variant.stage is None:
        return Linted(variant=variant, text="", findings=())
    launch = Launch(
        world_size=spec.world_size,
        deepspeed_version=version,
        framework="raw",
        client_optimizer=True,
        client_scheduler=False,
        engine="ds-accum" if variant.engine == "token" else "stock",
        accelerator=spec.device,
    )
    text = config_text(variant)
    findings: Sequence[Diagnostic] = lint_text(text, filename=variant.name, launches=[launch])
    return Linted(variant=variant, text=text, findings=tuple(findings))
