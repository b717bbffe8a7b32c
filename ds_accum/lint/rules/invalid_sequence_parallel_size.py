"""`sequence_parallel_size` is something that the world size can't be divided by.

DeepSpeed divides the world by it before anything else: zero is a ZeroDivisionError, a string a TypeError, a negative
size a negative data parallel size that surfaces as another key's fault.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.resolve import BatchFault
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config='{"train_micro_batch_size_per_gpu": 4, "sequence_parallel_size": 0}',
        reports=(
            Report(
                at="sequence_parallel_size",
                message="sequence_parallel_size must be an integer of at least 1, but is 0",
            ),
        ),
    ),
    Example(
        config='{"train_micro_batch_size_per_gpu": 4, "sequence_parallel_size": "2"}',
        launch=Launch(),
        reports=(
            Report(
                at="sequence_parallel_size",
                message='sequence_parallel_size must be an integer of at least 1, but is "2"',
            ),
        ),
    ),
)

GOOD = (
    Example(config='{"train_micro_batch_size_per_gpu": 4, "sequence_parallel_size": 1}', launch=Launch(world_size=8)),
)


def check(context: LintContext) -> Iterator[Finding]:
    key = "sequence_parallel_size"
    if context.batch.fault is BatchFault.DATA_PARALLEL and key in context.values:
        yield Finding(
            at=(key,),
            message=f"{key} must be an integer of at least 1, but is {shown(context.values[key])}",
            help="write an integer that divides the world size, or leave it out",
        )


RULE = Rule(
    code="DSA107",
    name="invalid-sequence-parallel-size",
    summary="sequence_parallel_size is something that the world size can't be divided by",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
)
