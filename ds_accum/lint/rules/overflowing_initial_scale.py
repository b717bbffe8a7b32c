"""The first loss scale is a number that the loss can't be multiplied by.

Dynamic scaling starts at 2 to the power of `initial_scale_power`, kept as a Python integer. ZeRO multiplies the loss by
it, and torch takes integers of 64 bits: from 2**64 on the first backward fails with "int too big to convert". Without
ZeRO the loss is not multiplied, but the gradient norm is divided, as a float, which ends at 2**1024.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.fix import Fix
from ds_accum.lint.mends import replaced
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"enabled": true, "initial_scale_power": 65},
  "zero_optimization": {"stage": 2}
}
""",
        reports=(
            Report(
                at="fp16.initial_scale_power",
                message="fp16.initial_scale_power 65 starts at a loss scale of 2**65, and at ZeRO stage 2 (line 5) the"
                " largest is 2**63",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"enabled": true, "initial_scale_power": 16},
  "zero_optimization": {"stage": 2}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config, fp16 = context.config, context.block("fp16")
    power = fp16.get("initial_scale_power")
    if not isinstance(power, int) or not config.enabled("fp16") or fp16.get("loss_scale") != 0:
        return
    if config.zero_stage is None:
        return
    largest = 1023 if config.zero_stage == 0 else 63
    if power <= largest:
        return
    yield Finding(
        at=("fp16", "initial_scale_power"),
        message=f"fp16.initial_scale_power {shown(power)} starts at a loss scale of 2**{shown(power)}, and at"
        f" {zero_stage(context)} the largest is 2**{largest}",
        help="use 16, the default, or the power that you meant: 16 for a scale of 65536",
        fix=_fix(power, largest),
    )


def _fix(power: int, largest: int) -> Fix | None:
    """A number that is itself a power of two was meant as the scale."""
    meant = power.bit_length() - 1
    if power != 1 << meant or meant > largest:
        return None
    return replaced(("fp16", "initial_scale_power"), meant, is_safe=False)


RULE = Rule(
    code="DSA309",
    name="overflowing-initial-scale",
    summary="the first loss scale is a number that the loss can't be multiplied by",
    rationale=__doc__,
    when=When.FIRST_STEP,
    check=check,
    bad=BAD,
    good=GOOD,
)
