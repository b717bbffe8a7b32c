"""A precision has settings, and nothing switches it on.

`fp16` and `bf16` are off unless `enabled` is true; a block that only sets the loss scale trains in fp32, with twice the
memory and none of what the block asks for. The string "auto", which Hugging Face would replace, counts as left out when
DeepSpeed itself reads the file.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"initial_scale_power": 12}
}
""",
        reports=(
            Report(at="fp16", message="fp16 does not say enabled, which is false by default, and the model is fp32"),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"initial_scale_power": 12, "enabled": true}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "fp16": {"enabled": true, "initial_scale_power": 12},
  "zero_optimization": {"stage": 1}
}
"""
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": true},
  "fp16": {"initial_scale_power": 12}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    blocks = [config.block("fp16"), config.block("bf16")]
    if any(block.get("enabled") or block.errors or not block.is_mapping for block in blocks):
        return
    for block in blocks:
        # An empty block asks for nothing; what a framework fills in is not in it.
        filled_in = any(path[: len(block.path)] == block.path for path in context.embedded.filled_in)
        if not block.present or not block.raw or block.written("enabled") or filled_in:
            continue
        yield Finding(
            at=block.path,
            on_key=True,
            message=f"{block.path[0]} does not say enabled, which is false by default, and the model is fp32",
            help='add "enabled": true, or remove the block',
            fix=Fix(title="set enabled to true", changes=(SetValue((*block.path, "enabled"), True),)),
        )


RULE = Rule(
    code="DSA318",
    name="precision-not-enabled",
    summary="a precision has settings, and nothing switches it on",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    severity=Severity.WARNING,
    bad=BAD,
    good=GOOD,
)
