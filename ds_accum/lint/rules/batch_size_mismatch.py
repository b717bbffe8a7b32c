"""All three batch sizes are written, and they do not multiply.

    train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x data parallel

With three numbers nothing is left to derive, so the config is right at exactly one data parallel size, and wrong as
soon as it is launched on other hardware. DeepSpeed asserts the product when every rank is up, without a line number,
and with whatever it believes the world size to be: "8 != 2 * 1 * 1" is often a job that was not launched as one.

Leaving one of the three out, usually `train_batch_size` or the accumulation, makes the config legal on more worlds.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.resolve import BATCH_KEYS, GLOBAL_BATCH, BatchFault
from ds_accum.lint.batch_words import legal_values, product, written
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.mends import removed
from ds_accum.lint.rule import Example, Report, Rule

BAD = (
    Example(
        config="""{
  "train_batch_size": 256,
  "train_micro_batch_size_per_gpu": 8,
  "gradient_accumulation_steps": 1
}
""",
        launch=Launch(world_size=8),
        reports=(
            Report(
                at="train_batch_size",
                message="train_batch_size 256 (line 2) is not micro batch 8 (line 3) x accumulation 1 (line 4)"
                " x data parallel 8 (the world size) = 64",
            ),
        ),
        fixed="""{
  "train_micro_batch_size_per_gpu": 8,
  "gradient_accumulation_steps": 1
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 100,
  "train_micro_batch_size_per_gpu": 8,
  "gradient_accumulation_steps": 1
}
""",
        launch=Launch(),
        reports=(
            Report(
                at="train_batch_size",
                message="train_batch_size 100 (line 2) is no multiple of micro batch 8 (line 3) x accumulation 1"
                " (line 4) = 8, so there is no world size at which it adds up",
            ),
        ),
        fixed="""{
  "train_micro_batch_size_per_gpu": 8,
  "gradient_accumulation_steps": 1
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 256,
  "train_micro_batch_size_per_gpu": 8,
  "gradient_accumulation_steps": 4
}
""",
        launch=Launch(world_size=8),
    ),
)


# Right at every world size; the global batch becomes what the other two and the launch make of it.
_FIX = removed((GLOBAL_BATCH,), is_safe=False)


def check(context: LintContext) -> Iterator[Finding]:
    batch = context.batch
    if context.has_filled_in_batch or batch.fault is not BatchFault.MISMATCH or batch.imbalance is None:
        return
    if any(mismatch.path[0] in BATCH_KEYS for mismatch in context.mismatches):
        return  # Trainer refuses it first, and says which number is not its own.
    if batch.data_parallel.size is None:
        yield Finding(
            at=(GLOBAL_BATCH,),
            message=f"{written(context, GLOBAL_BATCH)} is no multiple of {product(context, batch.imbalance)},"
            " so there is no world size at which it adds up",
            help="leave one of the three out, and DeepSpeed derives it",
            fix=_FIX,
        )
        return
    yield Finding(
        at=(GLOBAL_BATCH,),
        message=f"{written(context, GLOBAL_BATCH)} is not {product(context, batch.imbalance)}",
        help=f"{legal_values(context, batch.imbalance)}; or leave one of the three out, and DeepSpeed derives it",
        fix=_FIX,
    )


RULE = Rule(
    code="DSA101",
    name="batch-size-mismatch",
    summary="train_batch_size is not micro batch x accumulation x data parallel",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
    references=("https://www.deepspeed.ai/docs/config-json/#batch-size-related-parameters",),
)
