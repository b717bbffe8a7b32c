"""`tensor_parallel.autotp_size` is a string, a list or an object.

DeepSpeed's model of the block would turn "4" into 4, but `deepspeed.initialize` compares the written value with 0
before the model sees it ("'>' not supported between instances of 'str' and 'int'"). `"auto"` fails the same way.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import what

BAD = (
    Example(
        config='{"train_micro_batch_size_per_gpu": 2, "tensor_parallel": {"autotp_size": "4"}}',
        reports=(
            Report(
                at="tensor_parallel.autotp_size",
                message='tensor_parallel.autotp_size must be an integer, but is the string "4"',
            ),
        ),
    ),
)

GOOD = (Example(config='{"train_micro_batch_size_per_gpu": 2, "tensor_parallel": {"autotp_size": 1}}'),)


def check(context: LintContext) -> Iterator[Finding]:
    if "tensor_parallel" not in context.config.top.block.keys:
        return
    reading = context.block("tensor_parallel")
    size = reading.raw.get("autotp_size") if reading.present and reading.is_mapping else None
    if isinstance(size, str | list | dict) and size:
        yield Finding(
            at=("tensor_parallel", "autotp_size"),
            message=f"tensor_parallel.autotp_size must be an integer, but is {what(size)}",
            help="write the number without quotes" if isinstance(size, str) else "write an integer",
        )


RULE = Rule(
    code="DSA605",
    name="autotp-size-not-a-number",
    summary="tensor_parallel.autotp_size is compared with 0 before it is converted",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
)
