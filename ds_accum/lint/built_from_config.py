"""Whether DeepSpeed gets an optimizer, whether it builds what the config names, and how messages name what it builds.

A script may hand its own to `deepspeed.initialize`; the config's are then ignored without a word. What can't be known
is an unknown input, and each finding about them says on which it depends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ds_accum.config import support
from ds_accum.config.model import BlockReading
from ds_accum.config.optimizers import OptimizerChoice
from ds_accum.lint.context import LintContext
from ds_accum.lint.wording import shown

# For what only fails once DeepSpeed gets an optimizer, where the config names none.
_IF_THE_SCRIPT_PASSES_AN_OPTIMIZER = "if the script passes an optimizer"
# For what only fails with the optimizer, or the scheduler, that the config names.
_UNLESS_THE_SCRIPT_PASSES_AN_OPTIMIZER = "unless the script passes its own optimizer"
_UNLESS_THE_SCRIPT_PASSES_A_SCHEDULER = "unless the script passes its own scheduler"


class Condition(NamedTuple):
    """DeepSpeed has it so, with certainty or, with `depends_on`, if an unknown input has it so."""

    depends_on: str | None = None

    def and_only(self, condition: str | None) -> str | None:
        """What a finding depends on that holds under one more condition: both clauses in one."""
        if condition is None or self.depends_on is None:
            return condition or self.depends_on
        return f"{self.depends_on}, and {condition}"


def any_optimizer(context: LintContext) -> Condition | None:
    """When DeepSpeed gets an optimizer, one that the config names or the script's own; None: it never does."""
    has_one = support.has_optimizer(context.config, context.launch)
    if has_one is False:
        return None
    return Condition(depends_on=_IF_THE_SCRIPT_PASSES_AN_OPTIMIZER if has_one is None else None)


def optimizer_from_config(context: LintContext) -> Condition | None:
    """When DeepSpeed builds the optimizer that the config names; None: it never does."""
    builds = context.builds_optimizer_from_config
    if builds is False:
        return None
    return Condition(depends_on=_UNLESS_THE_SCRIPT_PASSES_AN_OPTIMIZER if builds is None else None)


def scheduler_from_config(context: LintContext) -> Condition | None:
    """When DeepSpeed builds the scheduler that the config names; None: it never does.

    It does so for an optimizer only, whoever brings that, and only if the script passes no scheduler. Before 0.14.5 the
    config's came first.
    """
    passes_one = context.launch.client_scheduler if context.version >= (0, 14, 5) else False
    optimizer = any_optimizer(context)
    if context.block("scheduler").get("type") is None or passes_one or optimizer is None:
        return None
    clauses = [] if optimizer.depends_on is None else [optimizer.depends_on]
    if passes_one is None:
        clauses.append("and no scheduler" if clauses else _UNLESS_THE_SCRIPT_PASSES_A_SCHEDULER)
    return Condition(depends_on=" ".join(clauses) or None)


def params_of(block: BlockReading) -> Mapping[Any, Any]:
    """The `params` of an optimizer or a scheduler; none where they are absent or no object."""
    params = block.get("params")
    return params if isinstance(params, Mapping) else {}


def class_behind_the_type(context: LintContext, choice: OptimizerChoice) -> str:
    """The class that is built, and why it is that one where the config says another word."""
    kind = context.block("optimizer").get("type")
    if kind == choice.name and "torch_adam" not in choice.kept_back:
        return choice.full_name
    said = f"{choice.full_name}, which DeepSpeed builds for {shown(kind)} ({context.line('optimizer', 'type')})"
    if choice.module == "torch.optim":
        return f"{said} with torch_adam" if "torch_adam" in choice.kept_back else said
    return f"{said} while its states are offloaded" if "CPU" in choice.name else said
