"""Gradients are to be summed over the ranks where DeepSpeed can only average them.

`gradient_allreduce_op: "sum"` leaves out the division by the data parallel size. ZeRO-3, ZenFlow and DeepCompile divide
in their own code, wherever it pleases them, and so the config is refused with any of the three.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.mends import removed
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import setting, zero_stage
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_allreduce_op": "sum",
  "zero_optimization": {"stage": 3}
}
""",
        reports=(
            Report(
                at="gradient_allreduce_op",
                message='gradient_allreduce_op "sum" is not supported with ZeRO stage 3 (line 4)',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 3}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_allreduce_op": "sum",
  "compile": {"deepcompile": true}
}
""",
        reports=(
            Report(
                at="gradient_allreduce_op",
                message='gradient_allreduce_op "sum" is not supported with deepcompile true (line 4)',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "compile": {"deepcompile": true}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "gradient_allreduce_op": "sum",
  "zero_optimization": {"stage": 2}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    if support.averages_gradients(config):
        return
    operation = shown(config.top["gradient_allreduce_op"])
    for other in _excluded(context):
        yield Finding(
            at=("gradient_allreduce_op",),
            message=f"gradient_allreduce_op {operation} is not supported with {other}",
            help='use "mean", or leave it out',
            fix=removed(("gradient_allreduce_op",), is_safe=False),
        )


def _excluded(context: LintContext) -> Iterator[str]:
    config = context.config
    if config.zero_stage == 3:
        yield zero_stage(context)
    if support.zenflow(config) is not None:
        yield f"zenflow ({context.line('zero_optimization', 'zenflow')})"
    if config.block("compile").get("deepcompile"):
        yield setting(context, True, "compile", "deepcompile")


RULE = Rule(
    code="DSA203",
    name="summed-gradients-unsupported",
    summary="gradient_allreduce_op is sum with ZeRO-3, ZenFlow or DeepCompile",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
)
