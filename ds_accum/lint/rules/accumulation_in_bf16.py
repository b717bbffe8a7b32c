"""The micro-batches of a step are added up in bf16.

bf16 keeps 8 significant bits, so a sum loses what is smaller than a 256th of it. DeepSpeed adds gradients up in the
precision of the model unless `data_types.grad_accum_dtype` says otherwise: measured, a step of 8 micro-batches is off
by 0.3%, which is what bf16 does to any number, one of 32 by 0.4 to 0.5%, one of 128 by 0.7 to 1%, and from 256 on equal
micro-batches change the sum no more. With "fp32" it is a few hundredths of a percent at ZeRO stages 2 and 3, and
nothing if `communication_data_type` is "fp32" as well. Without ZeRO there is no such choice.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.launch_facts import accumulation_steps
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import origin, zero_stage

# Below, the sum is hardly worse than the single rounding that a bf16 gradient has anyway.
WORTH_A_LINE = 16
# A half of the last bit of a sum of this many equal numbers is one of them.
STALLS_AT = 256

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 32,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 2}
}
""",
        reports=(
            Report(
                at="bf16.enabled",
                message="the 32 micro-batches of a step (line 3) are added up in bf16 at ZeRO stage 2 (line 6), with 8"
                " significant bits",
            ),
        ),
        fixed="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 32,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 2},
  "data_types": {"grad_accum_dtype": "fp32"},
  "communication_data_type": "fp32"
}
""",
    ),
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 512,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": true}
}
""",
        reports=(
            Report(
                at="bf16.enabled",
                message="the 512 micro-batches of a step (line 3) are added up in bf16 at ZeRO stage 0 (the default),"
                " with 8 significant bits",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 32,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": true},
  "data_types": {"grad_accum_dtype": "fp32"},
  "communication_data_type": "fp32",
  "zero_optimization": {"stage": 2}
}
"""
    ),
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": true}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    if support.model_dtype(config) != "bf16" or support.accumulates_in(config) != "bf16" or config.zero_stage is None:
        return
    steps = accumulation_steps(context)
    if steps is None or steps < WORTH_A_LINE or support.has_optimizer(config, context.launch) is False:
        return
    fp32 = SetValue(("data_types", "grad_accum_dtype"), "fp32"), SetValue(("communication_data_type",), "fp32")
    yield Finding(
        at=(*context.block("bf16").path, "enabled"),
        message=f"the {steps} micro-batches of a step ({origin(context, 'gradient_accumulation_steps')}) are added up"
        f" in bf16 at {zero_stage(context)}, with 8 significant bits",
        help='set data_types.grad_accum_dtype and communication_data_type to "fp32"'
        + (", which takes ZeRO stage 1, 2 or 3" if config.zero_stage == 0 else ""),
        severity=Severity.WARNING if steps > STALLS_AT else None,
        fix=Fix(title="add up and reduce in fp32", changes=fp32) if config.zero_stage != 0 else None,
    )


RULE = Rule(
    code="DSA311",
    name="accumulation-in-bf16",
    summary="the micro-batches of a step are added up in bf16",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    severity=Severity.INFO,
    bad=BAD,
    good=GOOD,
    references=("DeepSpeed #1835", "DeepSpeed #2768", "DeepSpeed PR #2847"),
)
