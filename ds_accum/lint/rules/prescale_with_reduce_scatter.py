"""Gradients are to be divided before their reduction, where ZeRO scatters them.

`prescale_gradients` divides by the number of ranks before the sum instead of after it. With `reduce_scatter`, which is
on by default, ZeRO-2 and ZeRO-3 know only the latter and refuse when the optimizer is built. The key is read without a
model: any value that Python takes for true switches it on, the string "false" among them.
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
from ds_accum.lint.wording import shown, what

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "prescale_gradients": true,
  "zero_optimization": {
    "stage": 3,
    "reduce_scatter": true
  }
}
""",
        reports=(
            Report(
                at="prescale_gradients",
                message="prescale_gradients true is not supported with reduce_scatter true (line 7) at"
                " ZeRO stage 3 (line 6)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 3,
    "reduce_scatter": true
  }
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "prescale_gradients": "false",
  "zero_optimization": {"stage": 2}
}
""",
        reports=(
            Report(
                at="prescale_gradients",
                message='prescale_gradients is the string "false", which counts as true, and that is not supported with'
                " reduce_scatter true (the default) at ZeRO stage 2 (line 5)",
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
  "prescale_gradients": true,
  "zero_optimization": {"stage": 3, "reduce_scatter": false}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    prescale = config.top.get("prescale_gradients")
    if not prescale or not support.scatters_scaled_gradients(config):
        return
    optimizer = any_optimizer(context)
    if config.zero_stage == 3 and optimizer is None:
        return
    said = (
        f"prescale_gradients {shown(prescale)} is"
        if prescale is True
        else f"prescale_gradients is {what(prescale)}, which counts as true, and that is"
    )
    scattering = setting(context, True, "zero_optimization", "reduce_scatter")
    yield Finding(
        at=("prescale_gradients",),
        message=f"{said} not supported with {scattering} at {zero_stage(context)}",
        help='leave it out, or set "reduce_scatter": false in zero_optimization',
        fix=removed(("prescale_gradients",), is_safe=False),
        # Without an optimizer ZeRO-2 refuses to start for that reason, ZeRO-3 starts.
        depends_on=optimizer.depends_on if optimizer is not None and config.zero_stage == 3 else None,
    )


RULE = Rule(
    code="DSA205",
    name="prescale-with-reduce-scatter",
    summary="prescale_gradients is on while ZeRO-2 or ZeRO-3 scatters gradients",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
