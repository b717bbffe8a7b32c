"""Adam begins with its second step, in bf16 without ZeRO.

The optimizers that DeepSpeed puts around Adam at stage 0 take one real step while they are built, with gradients of
zero, to have its states allocated. The step counts: the first update of training is corrected as the second would be,
and is 0.74 of the learning rate in the place of 1, and AdamW has applied its weight decay once before training began.
After a few dozen steps nothing is left of it but that decay; it matters to who compares first steps, or resumes often
without optimizer states. fp32, and ZeRO at any stage, begin with the first step.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage
from ds_accum.lint.wording import shown

SINCE = (0, 17, 6)

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": true}},
  "bf16": {"enabled": true}
}
""",
        reports=(
            Report(
                at="optimizer.type",
                message='"AdamW" takes a step with gradients of zero while it is built, in bf16 at ZeRO stage 0 (the'
                " default)",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": true}}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    if config.zero_stage != 0 or support.model_dtype(config) != "bf16" or context.version < SINCE:
        return
    name = config.block("optimizer").get("type")
    is_adam = isinstance(name, str) and name.lower() in ("adam", "adamw")
    if not is_adam or context.builds_optimizer_from_config is False or context.launch.pipeline_parallel_size > 1:
        return
    yield Finding(
        at=("optimizer", "type"),
        message=f"{shown(name)} takes a step with gradients of zero while it is built, in bf16 at"
        f" {zero_stage(context)}",
        help="use ZeRO stage 1 where the very first updates matter",
    )


RULE = Rule(
    code="DSA907",
    name="late-first-step",
    summary="the optimizer begins with its second step, in bf16 without ZeRO",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    severity=Severity.INFO,
    bad=BAD,
    good=GOOD,
)
