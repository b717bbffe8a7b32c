"""Gradients are to add up in another dtype than the model's, without ZeRO.

Without ZeRO gradients accumulate where torch puts them, in the parameters' own dtype. `data_types.grad_accum_dtype`
other than that needs ZeRO stage 1, 2 or 3; at stage 0 it is a `NotImplementedError` when the optimizer is built, also
for the usual wish, fp32 sums of a bf16 model, which releases before 0.18.5 still granted.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.support import Dtype
from ds_accum.lint.built_from_config import any_optimizer
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": true},
  "data_types": {"grad_accum_dtype": "fp32"}
}
""",
        reports=(
            Report(
                at="data_types.grad_accum_dtype",
                message='data_types.grad_accum_dtype "fp32" differs from the bf16 of the model, which'
                " ZeRO stage 0 (the default) can't do",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": true},
  "data_types": {"grad_accum_dtype": "fp32"},
  "zero_optimization": {"stage": 1}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    word = context.block("data_types").get("grad_accum_dtype")
    dtype, model = support.dtype_of(word), support.model_dtype(config)
    if config.zero_stage != 0 or dtype is None or dtype == model or _had_a_class_of_its_own(context, model, dtype):
        return
    depends_on = None
    if not (model == "bf16" and dtype != "fp32"):
        # bf16 gets `BF16_Optimizer` even without an optimizer, which takes fp32 and bf16; else nobody looks.
        optimizer = any_optimizer(context)
        if optimizer is None:
            return
        depends_on = optimizer.depends_on
    yield Finding(
        at=("data_types", "grad_accum_dtype"),
        message=f"data_types.grad_accum_dtype {shown(word)} differs from the {model} of the model, which"
        f" {zero_stage(context)} can't do",
        help="use ZeRO stage 1, 2 or 3, or leave it out",
        depends_on=depends_on,
    )


def _had_a_class_of_its_own(context: LintContext, model: Dtype, dtype: Dtype) -> bool:
    return context.version < (0, 18, 5) and model == "bf16" and dtype == "fp32"


RULE = Rule(
    code="DSA307",
    name="accumulation-dtype-without-zero",
    summary="gradients are to add up in another dtype than the model's, without ZeRO",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
