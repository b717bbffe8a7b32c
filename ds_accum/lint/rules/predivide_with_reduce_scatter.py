"""Gradients are to be divided in two parts, before and after their reduction, where ZeRO scatters them.

`gradient_predivide_factor` keeps fp16 sums over many ranks in range. With `reduce_scatter`, which is on by default,
ZeRO-2 and ZeRO-3 divide in one place only and refuse any factor but 1 when the optimizer is built. ZeRO-1 takes the
factor and ignores it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.lint.built_from_config import any_optimizer
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
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "gradient_predivide_factor": 4,
  "zero_optimization": {"stage": 2}
}
""",
        reports=(
            Report(
                at="gradient_predivide_factor",
                message="gradient_predivide_factor 4 is not supported with reduce_scatter true (the default) at"
                " ZeRO stage 2 (line 5)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 2}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "gradient_predivide_factor": 4,
  "zero_optimization": {"stage": 2, "reduce_scatter": false}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    factor = config.top.get("gradient_predivide_factor")
    if factor == 1 or not support.scatters_scaled_gradients(config):
        return
    optimizer = any_optimizer(context)
    if config.zero_stage == 3 and optimizer is None:
        return
    scattering = setting(context, True, "zero_optimization", "reduce_scatter")
    yield Finding(
        at=("gradient_predivide_factor",),
        message=f"gradient_predivide_factor {shown(factor)} is not supported with {scattering} at"
        f" {zero_stage(context)}",
        help='leave it out, or set "reduce_scatter": false in zero_optimization',
        fix=removed(("gradient_predivide_factor",), is_safe=False),
        # Without an optimizer ZeRO-2 refuses to start for that reason, ZeRO-3 starts.
        depends_on=optimizer.depends_on if optimizer is not None and config.zero_stage == 3 else None,
    )


RULE = Rule(
    code="DSA204",
    name="predivide-with-reduce-scatter",
    summary="gradient_predivide_factor is not 1 while ZeRO-2 or ZeRO-3 scatters gradients",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
