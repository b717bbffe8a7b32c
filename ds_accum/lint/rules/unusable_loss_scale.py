"""A setting of the fp16 loss scale is none that a loss can be scaled with.

A static `loss_scale` is a finite number of at least 0, and 0 asks for dynamic scaling; "dynamic" is a word of other
tools. With dynamic scaling the window and the floor must be at least 1: a window of 0 divides by zero at the first
growth, a floor of 0 lets the scale collapse. Newer releases refuse such values when they load the config, the first
kind even while fp16 is off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ds_accum.config.schema import checks_value
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.fix import Fix
from ds_accum.lint.mends import replaced, without_quotes
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.schema_errors import SchemaError, schema_errors
from ds_accum.lint.setting_words import origin
from ds_accum.lint.wording import dotted, shown, what

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "fp16": {"enabled": true, "loss_scale": "dynamic"}
}
""",
        reports=(
            Report(
                at="fp16.loss_scale",
                message='fp16.loss_scale must be a finite number of at least 0, but is the string "dynamic"',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "fp16": {"enabled": true, "loss_scale": 0}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "fp16": {
    "enabled": true,
    "loss_scale_window": true,
    "min_loss_scale": 0
  }
}
""",
        reports=(
            Report(
                at="fp16.loss_scale_window",
                message="fp16.loss_scale_window must be an integer, but is the boolean true",
            ),
            Report(
                at="fp16.min_loss_scale",
                message="fp16.min_loss_scale must be at least 1 with dynamic loss scaling (loss_scale 0, the default),"
                " but is 0",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 500, "min_loss_scale": 1},
  "zero_optimization": {"stage": 1}
}
"""
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"enabled": true, "loss_scale": 128, "min_loss_scale": 0},
  "zero_optimization": {"stage": 1}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    for error in schema_errors(context, "loss-scale"):
        yield Finding(at=error.path, message=_message(error), help=_help(error), fix=_fix(error))
    fp16 = context.block("fp16")
    if not context.config.enabled("fp16") or fp16.get("loss_scale") != 0:
        return
    for name in ("loss_scale_window", "min_loss_scale"):
        value = fp16.get(name)
        if isinstance(value, int) and value <= 0 and checks_value(context.version, "fp16", name):
            scale = f"loss_scale 0, {origin(context, 'fp16', 'loss_scale')}"
            yield Finding(
                at=("fp16", name),
                message=f"fp16.{name} must be at least 1 with dynamic loss scaling ({scale}), but is {shown(value)}",
                help="set it to 1 or more, or leave it out",
            )


def _message(error: SchemaError) -> str:
    is_scale = error.path[-1] == "loss_scale"
    wanted = "a finite number of at least 0" if is_scale else "an integer"
    return f"{dotted(error.path)} must be {wanted}, but is {what(error.value)}"


def _help(error: SchemaError) -> str:
    if error.path[-1] == "loss_scale" and isinstance(error.value, str):
        return "write 0 for dynamic loss scaling"
    return "change the value, or leave it out"


def _fix(error: SchemaError) -> Fix | None:
    if error.path[-1] == "loss_scale":
        if error.value == "dynamic":
            return replaced(error.path, 0)
        return without_quotes(error.path, error.value, accepts=_is_a_scale)
    return without_quotes(error.path, error.value, integer=True)


def _is_a_scale(value: Any) -> bool:
    return isinstance(value, int | float) and value >= 0


RULE = Rule(
    code="DSA302",
    name="unusable-loss-scale",
    summary="a setting of the fp16 loss scale is out of the question",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
)
