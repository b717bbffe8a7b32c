"""What the rules about continuing from a checkpoint share."""

from __future__ import annotations

from ds_accum.config.document import Path
from ds_accum.lint.context import LintContext

STAGE: Path = ("zero_optimization", "stage")
UNIVERSAL: Path = ("checkpoint", "load_universal")


def loads_universal(context: LintContext) -> bool:
    """Whether DeepSpeed loads a universal checkpoint, which fits any stage and any number of ranks."""
    return bool(context.block("checkpoint").get("load_universal"))
