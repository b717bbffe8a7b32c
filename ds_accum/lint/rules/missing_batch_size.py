"""Neither the global nor the micro batch size is written.

DeepSpeed needs one of them; the accumulation alone determines nothing. A misspelt key is the usual cause: the root of
the config ignores what it does not know, so `train_micro_batch_size` is as good as nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.resolve import ACCUMULATION, BATCH_KEYS, BatchFault
from ds_accum.config.spelling import closest_word
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.mends import renamed
from ds_accum.lint.rule import Example, Report, Rule

BAD = (
    Example(
        config='{"train_micro_batch_size": 4, "zero_optimization": {"stage": 2}}',
        reports=(
            Report(
                at="train_micro_batch_size",
                message="neither train_batch_size nor train_micro_batch_size_per_gpu is set",
            ),
        ),
    ),
    Example(
        config='{\n  "gradient_accumulation_steps": 8\n}\n',
        reports=(
            Report(
                at="",
                message="neither train_batch_size nor train_micro_batch_size_per_gpu is set, and"
                " gradient_accumulation_steps (line 2) alone determines neither",
            ),
        ),
    ),
)

GOOD = (Example(config='{"train_micro_batch_size_per_gpu": 4}'),)


def check(context: LintContext) -> Iterator[Finding]:
    batch = context.batch
    if context.has_filled_in_batch or batch.fault is not BatchFault.MISSING:
        return
    message = "neither train_batch_size nor train_micro_batch_size_per_gpu is set"
    if ACCUMULATION in batch.written:
        message += f", and gradient_accumulation_steps ({context.line(ACCUMULATION)}) alone determines neither"
    for key in context.values:
        meant = closest_word(str(key), BATCH_KEYS) if key not in BATCH_KEYS and "batch" in str(key) else None
        if meant is not None:
            yield Finding(
                at=(key,),
                on_key=True,
                message=message,
                help=f'did you mean "{meant}" instead of "{key}"?',
                fix=renamed((key,), meant, beside=context.values),
            )
            return
    yield Finding(at=(), message=message, help="add train_micro_batch_size_per_gpu or train_batch_size")


RULE = Rule(
    code="DSA103",
    name="missing-batch-size",
    summary="neither train_batch_size nor train_micro_batch_size_per_gpu is set",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
)
