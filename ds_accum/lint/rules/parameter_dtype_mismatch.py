"""The dtype of the parameters contradicts the precision that is switched on.

`data_types.param_dtype` does not choose a precision, `fp16.enabled` and `bf16.enabled` do. It only repeats the choice,
and DeepSpeed asserts at start that both agree; with neither switched on the parameters are fp32.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "bf16": {"enabled": true},
  "data_types": {"param_dtype": "fp32"}
}
""",
        reports=(
            Report(
                at="data_types.param_dtype",
                message='data_types.param_dtype is "fp32", but bf16.enabled (line 3) makes the parameters bf16',
            ),
        ),
    ),
    Example(
        config='{"train_batch_size": 8, "data_types": {"param_dtype": "bfloat16"}}',
        reports=(
            Report(
                at="data_types.param_dtype",
                message='data_types.param_dtype is "bfloat16", but without fp16.enabled or bf16.enabled the parameters'
                " are fp32",
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
  "data_types": {"param_dtype": "bf16"}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    data_types = context.block("data_types")
    if not data_types.present or "param_dtype" not in data_types.block.keys:
        return
    word = data_types.get("param_dtype")
    named, real = support.dtype_of(word), support.model_dtype(context.config)
    if named is None or named == real:
        return
    if real == "fp32":
        reason = "without fp16.enabled or bf16.enabled the parameters are fp32"
    else:
        block = context.block(real)
        reason = f"{block.path[0]}.enabled ({context.line(*block.path, 'enabled')}) makes the parameters {real}"
    wanted = f'"{named}": {{"enabled": true}}' if named in ("fp16", "bf16") else f"without {real}"
    yield Finding(
        at=("data_types", "param_dtype"),
        message=f"data_types.param_dtype is {shown(word)}, but {reason}",
        help=f"remove it, or train {'with ' if named != 'fp32' else ''}{wanted}",
    )


RULE = Rule(
    code="DSA306",
    name="parameter-dtype-mismatch",
    summary="data_types.param_dtype contradicts the precision that is switched on",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
