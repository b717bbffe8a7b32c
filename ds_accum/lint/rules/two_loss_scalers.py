"""The fp16 block and torch_autocast in fp16 both scale the loss, and the scales do not go together.

Each of the two makes fp16 training possible, and each brings its own loss scaling: DeepSpeed's for the `fp16` block,
torch's GradScaler for `torch_autocast` with the dtype float16. With both, ZeRO multiplies the loss by one scale and
divides the gradient by both: every update is tens of thousands of times too small. Without ZeRO the first step fails,
as nobody has asked GradScaler to look for infinities.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.lint.built_from_config import any_optimizer
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import origin, zero_stage

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
  "fp16": {"enabled": true},
  "torch_autocast": {"enabled": true, "dtype": "float16"},
  "zero_allow_untested_optimizer": true,
  "zero_optimization": {"stage": 2}
}
""",
        reports=(
            Report(
                at="torch_autocast.dtype",
                message="torch_autocast in fp16 (line 6) beside fp16 (line 5) has the gradient divided by two loss"
                " scales at ZeRO stage 2 (line 8), and the loss multiplied by one",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
  "fp16": {"enabled": true},
  "zero_allow_untested_optimizer": true,
  "zero_optimization": {"stage": 2}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"enabled": true},
  "torch_autocast": {"enabled": true, "dtype": "float16"}
}
""",
        reports=(
            Report(
                at="torch_autocast.dtype",
                message="torch_autocast in fp16 (line 5) beside fp16 (line 4) leaves torch's GradScaler without what it"
                " looks for at ZeRO stage 0 (the default)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"enabled": true}
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
  "fp16": {"enabled": true},
  "zero_allow_untested_optimizer": true,
  "zero_optimization": {"stage": 2}
}
"""
    ),
)

# The first release whose GradScaler divides by its scale where the fp16 optimizer has divided already.
SINCE = (0, 18, 3)


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    if not (config.enabled("fp16") and support.autocasts_to_fp16(config)) or config.zero_stage is None:
        return
    optimizer = any_optimizer(context)
    if optimizer is None or context.version < SINCE:
        return
    autocast, fp16 = (origin(context, "torch_autocast", "dtype"), origin(context, "fp16", "enabled"))
    without_zero = config.zero_stage == 0
    yield Finding(
        at=("torch_autocast", "dtype"),
        when=When.FIRST_STEP if without_zero else None,
        message=f"torch_autocast in fp16 ({autocast}) beside fp16 ({fp16}) "
        + (
            f"leaves torch's GradScaler without what it looks for at {zero_stage(context)}"
            if without_zero
            else f"has the gradient divided by two loss scales at {zero_stage(context)}, and the loss multiplied by one"
        ),
        help="keep one of the two",
        depends_on=optimizer.depends_on,
        fix=Fix(title="remove torch_autocast", changes=(RemoveKey(("torch_autocast",)),)),
    )


RULE = Rule(
    code="DSA313",
    name="two-loss-scalers",
    summary="the fp16 block and torch_autocast in fp16 both scale the loss",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    bad=BAD,
    good=GOOD,
)
