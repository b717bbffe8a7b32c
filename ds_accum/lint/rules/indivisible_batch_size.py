"""The global batch can't be dealt evenly to the ranks.

With `train_batch_size` and one more number, or alone, DeepSpeed derives the rest by floor division and only then
compares: 100 samples in micro batches of 3 on 8 ranks fail with "100 != 3 * 4 * 8", a product that nobody wrote; 16
samples in micro batches of 4 on 8 ranks fail with "Gradient accumulation steps: 0 has to be greater than 0".
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.resolve import GLOBAL_BATCH, BatchFault
from ds_accum.lint.batch_words import legal_values, product, written
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import number

BAD = (
    Example(
        config='{\n  "train_batch_size": 100,\n  "train_micro_batch_size_per_gpu": 3\n}\n',
        launch=Launch(world_size=8),
        reports=(
            Report(
                at="train_batch_size",
                message="train_batch_size 100 (line 2) is no multiple of micro batch 3 (line 3) x data parallel 8"
                " (the world size) = 24, remainder 4",
            ),
        ),
    ),
    Example(
        config='{\n  "train_batch_size": 16,\n  "train_micro_batch_size_per_gpu": 4\n}\n',
        launch=Launch(world_size=8),
        reports=(
            Report(
                at="train_batch_size",
                message="train_batch_size 16 (line 2) is less than micro batch 4 (line 3) x data parallel 8"
                " (the world size) = 32",
            ),
        ),
    ),
    Example(
        config='{\n  "train_batch_size": 60,\n  "gradient_accumulation_steps": 8\n}\n',
        launch=Launch(),
        reports=(
            Report(
                at="train_batch_size",
                message="train_batch_size 60 (line 2) is no multiple of accumulation 8 (line 3), remainder 4, whatever"
                " the world size",
            ),
        ),
    ),
)

GOOD = (
    Example(config='{"train_batch_size": 96, "train_micro_batch_size_per_gpu": 3}', launch=Launch(world_size=8)),
    Example(config='{"train_batch_size": 64}', launch=Launch(world_size=64)),
)


def check(context: LintContext) -> Iterator[Finding]:
    batch = context.batch
    imbalance = batch.imbalance
    if context.has_filled_in_batch or batch.fault is not BatchFault.INDIVISIBLE or imbalance is None:
        return
    if imbalance.global_batch_size < imbalance.product:
        relation, rest = "is less than", ""
    else:
        relation, rest = "is no multiple of", f", remainder {number(imbalance.remainder)}"
    everywhere = ", whatever the world size" if batch.data_parallel.size is None else ""
    yield Finding(
        at=(GLOBAL_BATCH,),
        message=f"{written(context, GLOBAL_BATCH)} {relation} {product(context, imbalance)}{rest}{everywhere}",
        help=legal_values(context, imbalance),
    )


RULE = Rule(
    code="DSA102",
    name="indivisible-batch-size",
    summary="train_batch_size can't be dealt evenly to the ranks",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
    references=("https://www.deepspeed.ai/docs/config-json/#batch-size-related-parameters",),
)
