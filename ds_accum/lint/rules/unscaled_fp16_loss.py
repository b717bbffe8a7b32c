"""fp16 without ZeRO divides the gradient by a loss scale that the loss was never multiplied by.

Loss scaling multiplies the loss before backward and divides the gradient after it. Since 0.18.3 `engine.backward`
multiplies for the optimizers of ZeRO only, while the fp16 optimizers of stage 0 still divide: with the usual scale of
65536 plain SGD stands still, clipping never sets in, and Adam, which cares little for the size of a gradient, trains on
what eps leaves of it. Nothing is reported; the printed gradient norm looks right. A static loss scale of 1 divides by
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.lint.built_from_config import any_optimizer
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import origin, zero_stage
from ds_accum.lint.wording import shown

SINCE = (0, 18, 3)

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
  "fp16": {"enabled": true, "loss_scale": 128}
}
""",
        reports=(
            Report(
                at="fp16.enabled",
                message="fp16 at ZeRO stage 0 (the default) divides the gradient by the loss scale 128 (line 5), but"
                " never multiplies the loss by it",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
  "fp16": {"enabled": true, "loss_scale": 128},
  "zero_optimization": {"stage": 1}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"enabled": true},
  "zero_optimization": {"stage": 0}
}
""",
        reports=(
            Report(
                at="fp16.enabled",
                message="fp16 at ZeRO stage 0 (line 5) divides the gradient by the loss scale 2**16 (the default), but"
                " never multiplies the loss by it",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"enabled": true},
  "zero_optimization": {"stage": 1}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
  "fp16": {"enabled": true, "loss_scale": 128},
  "zero_optimization": {"stage": 1},
  "zero_allow_untested_optimizer": true
}
"""
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"enabled": true, "loss_scale": 1}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config, fp16 = context.config, context.block("fp16")
    if context.version < SINCE or config.zero_stage != 0 or not config.enabled("fp16") or context.engine == "ds-accum":
        return
    optimizer = any_optimizer(context)
    static, power = fp16.get("loss_scale"), fp16.get("initial_scale_power")
    if optimizer is None or static == 1 or not isinstance(static, int | float) or support.autocasts_to_fp16(config):
        return
    if static == 0:
        if not isinstance(power, int):
            return
        scale, key = f"2**{shown(power)}", "initial_scale_power"
    else:
        scale, key = shown(static), "loss_scale"
    yield Finding(
        at=("fp16", "enabled"),
        message=f"fp16 at {zero_stage(context)} divides the gradient by the loss scale {scale}"
        f" ({origin(context, 'fp16', key)}), but never multiplies the loss by it",
        help="use ZeRO stage 1, which does both, or bf16",
        # A dynamic scale that starts at 1 divides by nothing until it first grows.
        severity=Severity.WARNING if static == 0 and power == 0 else None,
        depends_on=optimizer.depends_on,
        fix=Fix(title="use ZeRO stage 1", changes=(SetValue(("zero_optimization", "stage"), 1),)),
    )


RULE = Rule(
    code="DSA310",
    name="unscaled-fp16-loss",
    summary="fp16 without ZeRO divides the gradient by a loss scale that the loss was never multiplied by",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    bad=BAD,
    good=GOOD,
    references=("DeepSpeed PR #7665 (since 0.18.3)", "DeepSpeed PR #8393"),
)
