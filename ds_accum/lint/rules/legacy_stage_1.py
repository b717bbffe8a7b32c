"""The config asks for an implementation of ZeRO-1 that DeepSpeed dropped long ago.

`legacy_stage1` is still accepted as a key, and any stage but 0 then fails when the optimizer is built, with the advice
to downgrade below DeepSpeed 0.5.9. Copied configs carry it along.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.mends import removed
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 1, "legacy_stage1": true}
}
""",
        reports=(
            Report(
                at="zero_optimization.legacy_stage1",
                message="zero_optimization.legacy_stage1 asks for an implementation that DeepSpeed dropped in 0.5.9,"
                " and ZeRO stage 1 (line 4) does not start with it",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
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
  "zero_optimization": {"stage": 1, "legacy_stage1": false}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    if not context.block("zero_optimization").get("legacy_stage1") or config.zero_stage not in (1, 2, 3):
        return
    if support.uses_bf16_optimizer(config):
        return
    yield Finding(
        at=("zero_optimization", "legacy_stage1"),
        message="zero_optimization.legacy_stage1 asks for an implementation that DeepSpeed dropped in 0.5.9, and"
        f" {zero_stage(context)} does not start with it",
        help="remove it",
        fix=removed(("zero_optimization", "legacy_stage1")),
    )


RULE = Rule(
    code="DSA207",
    name="legacy-stage-1",
    summary="legacy_stage1 asks for an implementation that DeepSpeed has dropped",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
