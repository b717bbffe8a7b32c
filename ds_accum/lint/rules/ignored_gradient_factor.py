"""A setting asks for another division of gradients than the one that takes place.

`gradient_predivide_factor` and `prescale_gradients` keep sums over many ranks in the range of fp16 by dividing before
the reduction. The result is the same mean, so nothing tells that ZeRO-1 with reduce-scatter, gradients that are not
contiguous, `prescale_gradients`, or a reduction to the sum leave them out. Where an overflow was to be prevented, it is
not.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.launch_facts import is_one_rank
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import setting, zero_stage
from ds_accum.lint.wording import is_number, shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "gradient_predivide_factor": 8.0,
  "zero_optimization": {"stage": 1}
}
""",
        launch=Launch(world_size=2),
        reports=(
            Report(
                at="gradient_predivide_factor",
                message="gradient_predivide_factor 8 is not looked at with reduce_scatter true (the default) at ZeRO"
                " stage 1 (line 5)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 1}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "gradient_allreduce_op": "sum",
  "prescale_gradients": true,
  "gradient_predivide_factor": 8.0
}
""",
        launch=Launch(world_size=2),
        reports=(
            Report(
                at="prescale_gradients",
                message='prescale_gradients true is not looked at with gradient_allreduce_op "sum" (line 4)',
            ),
            Report(
                at="gradient_predivide_factor",
                message='gradient_predivide_factor 8 is not looked at with gradient_allreduce_op "sum" (line 4)',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "gradient_allreduce_op": "sum"
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "prescale_gradients": true,
  "gradient_predivide_factor": 8.0
}
""",
        launch=Launch(world_size=2),
        reports=(
            Report(
                at="gradient_predivide_factor",
                message="gradient_predivide_factor 8 is not looked at with prescale_gradients true (line 4)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "prescale_gradients": true
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "gradient_predivide_factor": 8.0,
  "zero_optimization": {"stage": 1, "reduce_scatter": false}
}
""",
        launch=Launch(world_size=2),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "prescale_gradients": false,
  "gradient_predivide_factor": 1.0,
  "zero_optimization": {"stage": 1}
}
""",
        launch=Launch(world_size=2),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    if config.zero_stage is None or is_one_rank(context):
        return
    if config.top.get("prescale_gradients") and not support.averages_gradients(config):
        yield _not_looked_at(context, "prescale_gradients", _summed(context))
    factor = config.top.get("gradient_predivide_factor")
    if not is_number(factor) or factor == 1:
        return
    if not (support.divides_before_reducing(config) or support.scatters_scaled_gradients(config)):
        reason = _why_there_is_no_factor(context)
        if reason is not None:
            yield _not_looked_at(context, "gradient_predivide_factor", reason)


def _not_looked_at(context: LintContext, key: str, reason: str) -> Finding:
    return Finding(
        at=(key,),
        message=f"{key} {shown(context.config.top.get(key))} is not looked at with {reason}",
        help="remove it, or what keeps it from being used",
        fix=Fix(title=f"remove {key}", changes=(RemoveKey((key,)),), is_safe=True),
    )


def _summed(context: LintContext) -> str:
    return setting(context, context.config.top.get("gradient_allreduce_op"), "gradient_allreduce_op")


def _why_there_is_no_factor(context: LintContext) -> str | None:
    config = context.config
    zero = config.block("zero_optimization")
    if not support.averages_gradients(config):
        return _summed(context)
    if config.top.get("prescale_gradients"):
        return setting(context, config.top.get("prescale_gradients"), "prescale_gradients")
    if config.zero_stage not in (1, 2):
        return None
    for key, value in (("reduce_scatter", True), ("contiguous_gradients", False)):
        if zero.get(key) is value:
            return f"{setting(context, value, 'zero_optimization', key)} at {zero_stage(context)}"
    return None


RULE = Rule(
    code="DSA221",
    name="ignored-gradient-factor",
    summary="a setting asks for another division of gradients than the one that takes place",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    severity=Severity.WARNING,
    bad=BAD,
    good=GOOD,
)
