"""`fp16.auto_cast` casts the inputs of the model to fp16, also where fp16 is off.

The key is meant for models in fp16 that get their inputs in fp32. Since 0.17.1 DeepSpeed reads it without asking
whether fp16 is enabled: a config that was switched to bf16, or to fp32, and kept the block hands fp16 inputs to a model
of another precision, and the first matrix product fails: "mat1 and mat2 must have the same dtype". Token numbers are no
floating point numbers and are left alone, so a language model does not notice.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import setting

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"enabled": false, "auto_cast": true},
  "bf16": {"enabled": true}
}
""",
        reports=(
            Report(
                at="fp16.auto_cast",
                message="fp16.auto_cast casts the inputs to fp16, but the model is in bf16: fp16.enabled is false"
                " (line 4), if the inputs are floating point numbers",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"enabled": false},
  "bf16": {"enabled": true}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"enabled": true, "auto_cast": true},
  "zero_optimization": {"stage": 1}
}
"""
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"enabled": false, "auto_cast": false}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    fp16 = context.block("fp16")
    if not fp16.get("auto_cast") or fp16.get("enabled") is not False or fp16.block.kind != "model":
        return  # before 0.17.1 a disabled block was not read
    if ("fp16", "enabled") in context.embedded.filled_in:
        return
    yield Finding(
        at=("fp16", "auto_cast"),
        message=f"fp16.auto_cast casts the inputs to fp16, but the model is in {support.model_dtype(context.config)}:"
        f" fp16.enabled is {setting(context, False, 'fp16', 'enabled').partition(' ')[2]}",
        help="remove it",
        depends_on="if the inputs are floating point numbers",
        fix=Fix(title="remove fp16.auto_cast", changes=(RemoveKey(("fp16", "auto_cast")),), is_safe=True),
    )


RULE = Rule(
    code="DSA017",
    name="auto-cast-without-fp16",
    summary="the inputs are cast to fp16, but the model is not in fp16",
    rationale=__doc__,
    when=When.FIRST_STEP,
    check=check,
    bad=BAD,
    good=GOOD,
)
