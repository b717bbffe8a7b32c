"""torch_autocast in fp16 with ZeRO clips gradients that are still multiplied by the loss scale.

torch's GradScaler multiplies the loss by 65536 at first. ZeRO's optimizers do not know of it: they take the norm of the
scaled gradient and clip that to `gradient_clipping`, and only then is it divided by the scale. An update that was to
have the norm 1 has the norm 1/65536, and the reported norm is as much too large. Without clipping there is a second
trap: after a step that overflows the scale is never halved, and every later step is skipped too. ZeRO stage 0 is
right.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.lint.built_from_config import any_optimizer
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import setting, zero_stage

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
  "torch_autocast": {"enabled": true, "dtype": "float16"},
  "zero_allow_untested_optimizer": true,
  "zero_optimization": {"stage": 2}
}
""",
        reports=(
            Report(
                at="torch_autocast.dtype",
                message="ZeRO stage 2 (line 7) clips gradients to gradient_clipping 1 (line 3) while they are"
                " multiplied by the loss scale of torch_autocast in fp16",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
  "torch_autocast": {"enabled": true, "dtype": "bfloat16"},
  "zero_allow_untested_optimizer": true,
  "zero_optimization": {"stage": 2}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "torch_autocast": {"enabled": true, "dtype": "float16"},
  "zero_optimization": {"stage": 1}
}
""",
        reports=(
            Report(
                at="torch_autocast.dtype",
                message="ZeRO stage 1 (line 6) never lowers the loss scale of torch_autocast in fp16: after the first"
                " overflow every step is skipped",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "gradient_clipping": 0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "torch_autocast": {"enabled": true, "dtype": "bfloat16"},
  "zero_optimization": {"stage": 1}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
  "torch_autocast": {"enabled": true, "dtype": "bfloat16"},
  "zero_allow_untested_optimizer": true,
  "zero_optimization": {"stage": 2}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    if config.zero_stage not in (1, 2, 3) or not support.autocasts_to_fp16(config) or config.enabled("fp16"):
        return
    optimizer, clipping = any_optimizer(context), config.top.get("gradient_clipping")
    # The optimizer of bf16 with fp32 accumulation has no GradScaler.
    if optimizer is None or support.uses_bf16_optimizer(config):
        return
    clips = isinstance(clipping, int | float) and clipping > 0
    if clips:
        what = (
            f"clips gradients to {setting(context, clipping, 'gradient_clipping')} while they are multiplied by the"
            " loss scale of torch_autocast in fp16"
        )
    else:
        what = "never lowers the loss scale of torch_autocast in fp16: after the first overflow every step is skipped"
    yield Finding(
        at=("torch_autocast", "dtype"),
        message=f"{zero_stage(context)} {what}",
        help='use "bfloat16", or the fp16 block in the place of torch_autocast',
        severity=None if clips else Severity.WARNING,
        depends_on=optimizer.depends_on,
        fix=Fix(title="autocast to bf16", changes=(SetValue(("torch_autocast", "dtype"), "bfloat16"),)),
    )


RULE = Rule(
    code="DSA902",
    name="clipping-of-scaled-gradients",
    summary="torch_autocast in fp16 with ZeRO clips gradients that are still multiplied by the loss scale",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    bad=BAD,
    good=GOOD,
)
