"""`data_types` names a dtype that there is not, or one that no gradient fits into.

DeepSpeed knows four dtypes by eleven words, in lower case only. It looks the word up when it builds the optimizer, and
fails with "'FP32' is not a valid DtypeEnum". One of the four is int8, which is accepted: gradients then add up as whole
numbers, nearly all of them zero. `buffer_dtype` is read for a model in fp16 or bf16 only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ds_accum.config import support
from ds_accum.lint.built_from_config import any_optimizer
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.mends import replaced
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage
from ds_accum.lint.wording import shown, what

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "data_types": {"grad_accum_dtype": "FP32"}
}
""",
        reports=(
            Report(
                at="data_types.grad_accum_dtype",
                message='data_types.grad_accum_dtype must be "fp32", "fp16" or "bf16", but is the string "FP32"',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "data_types": {"grad_accum_dtype": "fp32"}
}
""",
    ),
    Example(
        config='{"train_batch_size": 8, "data_types": {"param_dtype": "auto"}}',
        reports=(
            Report(
                at="data_types.param_dtype",
                message='data_types.param_dtype must be "fp32", "fp16" or "bf16", but is the string "auto"',
            ),
        ),
    ),
    Example(
        config='{"train_batch_size": 8, "bf16": {"enabled": true}, "data_types": {"buffer_dtype": "float64"}}',
        reports=(
            Report(
                at="data_types.buffer_dtype",
                message='data_types.buffer_dtype must be "fp32", "fp16" or "bf16", but is the string "float64"',
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "data_types": {"grad_accum_dtype": "int8"},
  "zero_optimization": {"stage": 1}
}
""",
        reports=(
            Report(
                at="data_types.grad_accum_dtype",
                message='data_types.grad_accum_dtype "int8" makes ZeRO stage 1 (line 5) add up gradients as whole'
                " numbers",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "data_types": {"grad_accum_dtype": "fp32"},
  "zero_optimization": {"stage": 1}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": true},
  "data_types": {"grad_accum_dtype": "float32", "param_dtype": "bf16", "buffer_dtype": "fp32"},
  "zero_optimization": {"stage": 2}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    data_types = context.block("data_types")
    if not data_types.present or not data_types.is_mapping:
        return
    if "param_dtype" in data_types.block.keys:
        yield from _unknown(context, "param_dtype", data_types.get("param_dtype"))
    if "buffer_dtype" in data_types.block.keys and support.model_dtype(context.config) != "fp32":
        yield from _unknown(context, "buffer_dtype", data_types.get("buffer_dtype"))
    word = data_types.get("grad_accum_dtype")
    if support.dtype_of(word) == "int8":
        yield from _whole_numbers(context, word)
    else:
        yield from _unknown(context, "grad_accum_dtype", word)


def _unknown(context: LintContext, key: str, word: Any) -> Iterator[Finding]:
    if word is None or support.dtype_of(word) is not None:
        return
    depends_on = None
    if key == "grad_accum_dtype" and context.config.zero_stage == 0 and not context.config.enabled("bf16"):
        # Nobody asks for the word where DeepSpeed wraps no optimizer.
        optimizer = any_optimizer(context)
        if optimizer is None:
            return
        depends_on = optimizer.depends_on
    meant = support.dtype_of(word.lower()) if isinstance(word, str) else None
    yield Finding(
        at=("data_types", key),
        message=f'data_types.{key} must be "fp32", "fp16" or "bf16", but is {what(word)}',
        help=f"write {shown(meant)}" if meant else "use one of these, or leave it out",
        fix=replaced(("data_types", key), meant) if meant else None,
        depends_on=depends_on,
    )


def _whole_numbers(context: LintContext, word: str) -> Iterator[Finding]:
    config = context.config
    if config.zero_stage not in (1, 3):
        return  # refused at stage 0, which another rule reports; without effect at stage 2
    zero = context.block("zero_optimization")
    fails = config.zero_stage == 1 and zero.get("reduce_scatter") is True and zero.get("contiguous_gradients") is True
    yield Finding(
        at=("data_types", "grad_accum_dtype"),
        when=When.FIRST_STEP if fails else When.NEVER,
        message=f"data_types.grad_accum_dtype {shown(word)} makes {zero_stage(context)} add up gradients as whole"
        " numbers",
        help='use "fp32"',
        fix=replaced(("data_types", "grad_accum_dtype"), "fp32", is_safe=False),
    )


RULE = Rule(
    code="DSA305",
    name="invalid-accumulation-dtype",
    summary="data_types names a dtype that there is not, or one that no gradient fits into",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
