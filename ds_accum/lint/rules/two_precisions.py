"""fp16 and bf16 are both switched on.

A model is trained in one precision, and DeepSpeed asserts that the config asks for one. Configs that were written for
the Hugging Face Trainer set both to "auto"; filled in by hand for both, or read without the Trainer, they meet here.
The old spelling `bfloat16` counts where `bf16` is absent or null.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "fp16": {"enabled": true},
  "bf16": {"enabled": "true"}
}
""",
        reports=(
            Report(
                at="bf16.enabled",
                message="bf16.enabled is true, and so is fp16.enabled (line 3), but a model has one precision",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"enabled": false},
  "bf16": {"enabled": true}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    if not (context.config.enabled("fp16") and context.config.enabled("bf16")):
        return
    at = (*context.block("bf16").path, "enabled")
    yield Finding(
        at=at,
        message=f"{dotted(at)} is true, and so is fp16.enabled ({context.line('fp16', 'enabled')}), but a model has one"
        " precision",
        help="switch one of them off",
    )


RULE = Rule(
    code="DSA301",
    name="two-precisions",
    summary="fp16 and bf16 are both enabled",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
)
