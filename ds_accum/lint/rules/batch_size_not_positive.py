"""A batch size is zero or negative.

DeepSpeed divides by it (a ZeroDivisionError without a key) or reports another, derived number as the one at fault: with
`gradient_accumulation_steps: 0` the message is "Train batch size: 0 has to be greater than 0". `false` counts as 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.resolve import ACCUMULATION, BATCH_KEYS
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.mends import removed
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config='{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 0}',
        reports=(
            Report(
                at="gradient_accumulation_steps", message="gradient_accumulation_steps must be at least 1, but is 0"
            ),
        ),
        fixed='{"train_micro_batch_size_per_gpu": 4}',
    ),
)

GOOD = (Example(config='{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1}'),)


def check(context: LintContext) -> Iterator[Finding]:
    for key in BATCH_KEYS:
        value = context.values.get(key)
        if isinstance(value, int | float) and not value > 0:
            yield Finding(
                at=(key,),
                message=f"{key} must be at least 1, but is {shown(value)}",
                help="write a positive integer, or leave it out for DeepSpeed to derive it",
                # Without one of the other two there is nothing to derive from.
                fix=removed((key,), is_safe=False) if key == ACCUMULATION else None,
            )


RULE = Rule(
    code="DSA105",
    name="batch-size-not-positive",
    summary="a batch size is zero or negative",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
)
