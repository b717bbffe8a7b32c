"""The update of a step after which the loss scale grows is half of what it should be.

Dynamic loss scaling doubles the scale after `loss_scale_window` steps without an overflow. DeepSpeed doubles it before
it divides the gradient of that very step, which was multiplied by the old scale. With the default window of 1000 one
update in a thousand is halved, which nobody will notice; with a short window it is one in ten or in two. ZeRO-3 reports
half the norm as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import origin
from ds_accum.lint.wording import number

# A window this long halves fewer than one update in a hundred.
LONG = 100

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"enabled": true, "initial_scale_power": 4, "loss_scale_window": 1},
  "zero_optimization": {"stage": 3}
}
""",
        reports=(
            Report(
                at="fp16.loss_scale_window",
                message="the loss scale grows after every step without an overflow (line 5), and DeepSpeed halves the"
                " update of a step at which it does",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"enabled": true, "initial_scale_power": 4, "loss_scale_window": 1000},
  "zero_optimization": {"stage": 3}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"enabled": true, "initial_scale_power": 4, "loss_scale_window": 1000},
  "zero_optimization": {"stage": 3}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config, fp16 = context.config, context.block("fp16")
    if config.zero_stage not in (1, 2, 3) or not config.enabled("fp16") or fp16.get("loss_scale") != 0:
        return
    window = fp16.get("loss_scale_window")
    if not isinstance(window, int) or not 0 < window <= LONG or support.has_optimizer(config, context.launch) is False:
        return
    steps = "every step" if window == 1 else f"{number(window)} steps"
    yield Finding(
        at=("fp16", "loss_scale_window"),
        message=f"the loss scale grows after {steps} without an overflow"
        f" ({origin(context, 'fp16', 'loss_scale_window')}), and DeepSpeed halves the update of a step at which it"
        " does",
        help="use 1000, the default",
        fix=Fix(title="set loss_scale_window to 1000", changes=(SetValue(("fp16", "loss_scale_window"), 1000),)),
    )


RULE = Rule(
    code="DSA905",
    name="halved-update",
    summary="the update of a step after which the loss scale grows is half of what it should be",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    severity=Severity.INFO,
    bad=BAD,
    good=GOOD,
    references=("DeepSpeed PR #2695, which mended the norm of ZeRO-1 and ZeRO-2",),
)
