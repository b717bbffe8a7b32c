"""A setting as a message names it: with the value that DeepSpeed takes, and where that comes from.

    gradient_clipping 1.0 (the default)          ZeRO stage 2 (line 4)

Two settings that clash are both named so, and the reader sees which line to change, or which default to override.
"""

from __future__ import annotations

from typing import Any

from ds_accum.lint.context import LintContext
from ds_accum.lint.wording import shown


def origin(context: LintContext, *path: str) -> str:
    """Where the value of a setting comes from: "line 4", "the default"."""
    held: Any = context.values
    for part in path:
        if not isinstance(held, dict):
            break  # `"zero_optimization": true` sets the stage as well
        if part not in held:
            return "the default"
        held = held[part]
    return context.line(*path)


def setting(context: LintContext, value: Any, *path: str) -> str:
    """A setting by the name of its key: `overlap_comm true (line 5)`."""
    return f"{path[-1]} {shown(value)} ({origin(context, *path)})"


def zero_stage(context: LintContext) -> str:
    """`ZeRO stage 2 (line 4)`."""
    return f"ZeRO stage {context.config.zero_stage} ({origin(context, 'zero_optimization', 'stage')})"
