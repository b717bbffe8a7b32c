"""Gradients are to add up in a narrower dtype than the model's own.

`data_types.grad_accum_dtype` exists to add up in more bits than a 16-bit model has. The other way round it works as
well, and rounds every gradient: an fp32 model loses 16 of its 24 bits to bf16, and fp16 has no room for gradients above
65504, which bf16 and fp32 have. ZeRO-2 without accumulation in another buffer takes the word of an fp32 model and goes
on in fp32.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
  "data_types": {"grad_accum_dtype": "bf16"},
  "zero_allow_untested_optimizer": true,
  "zero_optimization": {"stage": 1}
}
""",
        reports=(
            Report(
                at="data_types.grad_accum_dtype",
                message='data_types.grad_accum_dtype "bf16" rounds the gradients of an fp32 model to 8 significant bits'
                " at ZeRO stage 1 (line 7)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
  "data_types": {},
  "zero_allow_untested_optimizer": true,
  "zero_optimization": {"stage": 1}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": true},
  "data_types": {"grad_accum_dtype": "fp16"},
  "zero_optimization": {"stage": 3}
}
""",
        reports=(
            Report(
                at="data_types.grad_accum_dtype",
                message='data_types.grad_accum_dtype "fp16" has no room for the gradients of a bf16 model beyond 65504'
                " at ZeRO stage 3 (line 6)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": true},
  "data_types": {},
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
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
  "zero_allow_untested_optimizer": true,
  "zero_optimization": {"stage": 1}
}
"""
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": true},
  "data_types": {"grad_accum_dtype": "fp32"},
  "zero_optimization": {"stage": 3}
}
"""
    ),
)

# What is lost: {(model, accumulation): clause}.
_LOSSES = {
    ("fp32", "bf16"): "rounds the gradients of an fp32 model to 8 significant bits",
    ("fp32", "fp16"): "rounds the gradients of an fp32 model to 11 significant bits, and has no room beyond 65504,",
    ("fp16", "bf16"): "rounds the gradients of an fp16 model to 8 significant bits",
    ("bf16", "fp16"): "has no room for the gradients of a bf16 model beyond 65504",
}


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    word = context.block("data_types").get("grad_accum_dtype")
    model, dtype = support.model_dtype(config), support.dtype_of(word)
    if config.zero_stage not in (1, 2, 3) or dtype is None or support.optimizer_device(config) != "none":
        return
    loss = _LOSSES.get((model, dtype))
    if loss is None or support.has_optimizer(config, context.launch) is False:
        return
    if config.zero_stage == 2 and model == "fp32":
        loss = "is not looked at for an fp32 model"
    yield Finding(
        at=("data_types", "grad_accum_dtype"),
        message=f"data_types.grad_accum_dtype {shown(word)} {loss} at {zero_stage(context)}",
        help='remove it, or use "fp32"',
        fix=Fix(title="remove grad_accum_dtype", changes=(RemoveKey(("data_types", "grad_accum_dtype")),)),
    )


RULE = Rule(
    code="DSA314",
    name="narrow-accumulation",
    summary="gradients are to add up in a narrower dtype than the model's own",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    severity=Severity.WARNING,
    bad=BAD,
    good=GOOD,
)
