"""`expert_parallel` asks for load balancing that DeepSpeed does not have.

AutoEP reads `load_balance_coeff` only to refuse it: the coefficient belongs to a balancing method without auxiliary
loss that this build lacks. Any value but `null` fails, `false` and `0` included.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config='{"train_micro_batch_size_per_gpu": 2, "expert_parallel": {"load_balance_coeff": 0.001}}',
        reports=(
            Report(
                at="expert_parallel.load_balance_coeff",
                message="expert_parallel.load_balance_coeff must be null, but is 0.001",
            ),
        ),
    ),
)

GOOD = (
    Example(config='{"train_micro_batch_size_per_gpu": 2, "expert_parallel": {"load_balance_coeff": null}}'),
    Example(config='{"train_micro_batch_size_per_gpu": 2, "expert_parallel": {"autoep_size": 1}}'),
)


def check(context: LintContext) -> Iterator[Finding]:
    if "expert_parallel" not in context.config.top.block.keys:
        return
    value = context.block("expert_parallel").get("load_balance_coeff")
    if value is not None:
        yield Finding(
            at=("expert_parallel", "load_balance_coeff"),
            message=f"expert_parallel.load_balance_coeff must be null, but is {shown(value)}",
            help="remove it",
        )


RULE = Rule(
    code="DSA604",
    name="invalid-expert-parallel",
    summary="expert_parallel asks for load balancing that DeepSpeed does not have",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
)
