"""A batch size or the data parallel size is a fraction, and the product does not come out.

DeepSpeed computes with whatever it is given: `sequence_parallel_size` 3 on 8 ranks makes a data parallel size of 2.667,
and a `train_batch_size` of 7.5 is floored here and compared there. Now and then such numbers pass its check; these do
not.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.resolve import BATCH_KEYS, GLOBAL_BATCH, BatchFault
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import number, shown

BAD = (
    Example(
        config='{\n  "train_batch_size": 7.5\n}\n',
        reports=(
            Report(
                at="train_batch_size",
                message="train_batch_size 7.5 does not come out even on data parallel 1",
            ),
        ),
    ),
    Example(
        config='{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 2, "sequence_parallel_size": 3}',
        launch=Launch(world_size=8),
        reports=(
            Report(
                at="sequence_parallel_size",
                message="train_batch_size 30, train_micro_batch_size_per_gpu 2 does not come out even on data parallel"
                " 2.66667 (world 8 / sequence_parallel_size 3)",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config='{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2, "sequence_parallel_size": 1}',
        launch=Launch(world_size=8),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    batch = context.batch
    if context.has_filled_in_batch or batch.fault is not BatchFault.FRACTION:
        return
    sizes = ", ".join(f"{key} {shown(batch.written[key])}" for key in BATCH_KEYS if key in batch.written)
    assert batch.data_parallel.size is not None, "a fraction is only a fault on a known world"
    on = f"data parallel {number(batch.data_parallel.size)}"
    if batch.data_parallel.divisor_key == "sequence_parallel_size":
        on += f" (world {context.launch.world_size} / sequence_parallel_size"
        on += f" {shown(context.values['sequence_parallel_size'])})"
    yield Finding(
        at=(batch.fault_key or GLOBAL_BATCH,),
        message=f"{sizes} does not come out even on {on}",
        help="use integers, and a sequence parallel size that divides the world size",
    )


RULE = Rule(
    code="DSA106",
    name="fractional-batch-size",
    summary="fractions in the batch arithmetic do not come out even",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
)
