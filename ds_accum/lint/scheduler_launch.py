"""Whether DeepSpeed builds the learning rate scheduler that the config names, as the scheduler's rules ask it."""

from __future__ import annotations

from ds_accum.config.support import has_optimizer
from ds_accum.lint.context import LintContext
from ds_accum.lint.setting_words import IF_THE_SCRIPT_PASSES_ONE

UNLESS_THE_SCRIPT_PASSES_A_SCHEDULER = "unless the script passes its own scheduler"


def is_never_built(context: LintContext) -> bool:
    """Whether the script's own scheduler takes its place, or there is no optimizer that it could be built for."""
    return bool(context.launch.client_scheduler) or has_optimizer(context.config, context.launch) is False


def depends_on(context: LintContext) -> str | None:
    """The clause for what is not known about the script, None where it is certain that the scheduler is built."""
    if context.launch.client_scheduler is None:
        return UNLESS_THE_SCRIPT_PASSES_A_SCHEDULER
    return None if has_optimizer(context.config, context.launch) else IF_THE_SCRIPT_PASSES_ONE
