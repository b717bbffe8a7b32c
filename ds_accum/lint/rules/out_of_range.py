"""A number is outside of what DeepSpeed accepts for it.

Bucket sizes, thresholds and ratios have bounds in DeepSpeed's models. They are checked when the engine starts.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.schema_errors import SchemaError, schema_errors
from ds_accum.lint.wording import dotted, shown

BAD = (
    Example(
        config='{"train_batch_size": 8, "zero_optimization": {"stage": 2, "reduce_bucket_size": 0}}',
        reports=(
            Report(
                at="zero_optimization.reduce_bucket_size",
                message="zero_optimization.reduce_bucket_size must be greater than 0, but is 0",
            ),
        ),
    ),
)

GOOD = (Example(config='{"train_batch_size": 8, "zero_optimization": {"stage": 2, "reduce_bucket_size": 1}}'),)


def check(context: LintContext) -> Iterator[Finding]:
    for error in schema_errors(context, "out-of-range"):
        yield Finding(
            at=error.path,
            message=f"{dotted(error.path)} must be {_bound(error)}, but is {shown(error.value)}",
            help="use a value in the range",
        )


def _bound(error: SchemaError) -> str:
    said = {"gt": "greater than", "ge": "at least", "lt": "less than", "le": "at most"}
    return " and ".join(f"{said[name]} {bound:g}" for name, bound in error.error.context.items() if name in said)


RULE = Rule(
    code="DSA012",
    name="out-of-range",
    summary="a number is outside of what DeepSpeed accepts",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
)
