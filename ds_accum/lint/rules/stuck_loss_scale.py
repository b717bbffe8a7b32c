"""The loss scale never falls, so that the first overflow is the last step.

Dynamic scaling halves the scale after `hysteresis` overflows, which it counts down to 1. From 0 or below it never
arrives there: once a scaled gradient overflows, the scale stays as it is, the next one overflows as well, and every
step from then on is skipped. The job goes on, and its loss does not.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"enabled": true, "initial_scale_power": 40, "hysteresis": 0},
  "zero_optimization": {"stage": 2}
}
""",
        reports=(
            Report(
                at="fp16.hysteresis",
                message="fp16.hysteresis 0 never lets the loss scale fall: after the first overflow every step is"
                " skipped",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"enabled": true, "initial_scale_power": 40, "hysteresis": 1},
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
  "fp16": {"enabled": true, "initial_scale_power": 40, "hysteresis": 1},
  "zero_optimization": {"stage": 2}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config, fp16 = context.config, context.block("fp16")
    # The optimizers of stage 0 do not know the key.
    if config.zero_stage not in (1, 2, 3) or not config.enabled("fp16") or fp16.get("loss_scale") != 0:
        return
    hysteresis = fp16.get("hysteresis")
    if not isinstance(hysteresis, int) or hysteresis > 0 or support.has_optimizer(config, context.launch) is False:
        return
    yield Finding(
        at=(*fp16.path, "hysteresis"),
        message=f"fp16.hysteresis {shown(hysteresis)} never lets the loss scale fall: after the first overflow every"
        " step is skipped",
        help="use 2, the default, or 1 to halve the scale at every overflow",
        fix=Fix(title="set hysteresis to 1", changes=(SetValue((*fp16.path, "hysteresis"), 1),)),
    )


RULE = Rule(
    code="DSA316",
    name="stuck-loss-scale",
    summary="the loss scale never falls, so that the first overflow is the last step",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    severity=Severity.WARNING,
    bad=BAD,
    good=GOOD,
)
