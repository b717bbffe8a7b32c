"""The bucket in which ZeRO gathers the updated parameters has an odd number of elements.

ZeRO-1 and ZeRO-2 align what they send to 4 bytes, two elements of half precision, and assert that the bucket keeps that
alignment. The number is often the product of a script, or a round number with a digit too many.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.mends import replaced
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage
from ds_accum.lint.wording import dotted, shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "allgather_bucket_size": 200000001
  }
}
""",
        reports=(
            Report(
                at="zero_optimization.allgather_bucket_size",
                message="zero_optimization.allgather_bucket_size 200000001 is odd, and ZeRO stage 2 (line 5) needs an"
                " even number of elements",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "allgather_bucket_size": 200000000
  }
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": true,
  "allgather_size": 12345
}
""",
        reports=(
            Report(
                at="allgather_size",
                message="allgather_size 12345 is odd, and ZeRO stage 1 (line 4) needs an even number of elements",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": true,
  "allgather_size": 12344
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 2, "allgather_bucket_size": 200000000}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    size = context.block("zero_optimization").get("allgather_bucket_size")
    if config.zero_stage not in (1, 2) or not isinstance(size, int) or size % 2 == 0:
        return
    if support.uses_bf16_optimizer(config):
        return
    # `"zero_optimization": true` takes the size from another key.
    is_switch = isinstance(context.values.get("zero_optimization"), bool)
    at = ("allgather_size",) if is_switch else ("zero_optimization", "allgather_bucket_size")
    yield Finding(
        at=at,
        message=f"{dotted(at)} {shown(size)} is odd, and {zero_stage(context)} needs an even number of elements",
        help=f"set it to {shown(size - 1)} or {shown(size + 1)}",
        fix=replaced(at, max(size - 1, 2)),
    )


RULE = Rule(
    code="DSA206",
    name="odd-allgather-bucket",
    summary="allgather_bucket_size is odd at ZeRO stage 1 or 2",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
