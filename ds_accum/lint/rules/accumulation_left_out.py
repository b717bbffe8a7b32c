"""Only the global batch size is written, and all of it is computed at once.

From `train_batch_size` alone DeepSpeed takes an accumulation of 1 and gives every rank its whole share as one micro
batch: 512 on eight ranks are 64 samples in each forward pass. A config that lost its other keys, or has them
misspelt, is read like this too, and the first sign is a GPU out of memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.resolve import GLOBAL_BATCH, MICRO_BATCH
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import number, shown

BAD = (
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}',
        reports=(
            Report(
                at="train_batch_size",
                message="train_batch_size 8 alone is accumulation 1 (the default) and micro batch 8 on each of 1 data"
                " parallel ranks",
            ),
        ),
    ),
    Example(
        config='{"train_batch_size": 480}',
        launch=Launch(),
        reports=(
            Report(
                at="train_batch_size",
                message="train_batch_size 480 alone is accumulation 1 (the default), with the micro batch that is left"
                " for each rank",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "train_micro_batch_size_per_gpu": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
"""
    ),
    Example(config='{"train_batch_size": 8, "gradient_accumulation_steps": 1}'),
)


def check(context: LintContext) -> Iterator[Finding]:
    batch = context.batch
    if context.has_filled_in_batch or batch.fault is not None or set(batch.written) != {GLOBAL_BATCH}:
        return
    global_batch, size = batch.written[GLOBAL_BATCH], batch.data_parallel.size
    message = f"{GLOBAL_BATCH} {shown(global_batch)} alone is accumulation 1 (the default)"
    if size is None:
        message += ", with the micro batch that is left for each rank"
    else:
        message += f" and micro batch {number(global_batch // size)} on each of {number(size)} data parallel ranks"
    yield Finding(
        at=(GLOBAL_BATCH,),
        message=message,
        help=f"add {MICRO_BATCH}, and DeepSpeed derives the accumulation from both",
    )


RULE = Rule(
    code="DSA109",
    name="accumulation-left-out",
    summary="only train_batch_size is written, so nothing is accumulated",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.INFO,
    check=check,
    bad=BAD,
    good=GOOD,
)
