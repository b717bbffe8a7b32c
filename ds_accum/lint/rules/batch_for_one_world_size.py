"""All three batch sizes are numbers, and they add up at one world size only.

DeepSpeed derives what is left out. With nothing left out `train_batch_size` / (micro batch x accumulation) *is* the
data parallel size, and at any other the config is refused when every rank is up already. That is right for a file
that belongs to one cluster; for all others one number is better left out. Nothing is said once the world size is
given.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.resolve import ACCUMULATION, BATCH_KEYS, GLOBAL_BATCH, MICRO_BATCH
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 256,
  "train_micro_batch_size_per_gpu": 8,
  "gradient_accumulation_steps": 4
}
""",
        launch=Launch(),
        reports=(
            Report(
                at="train_batch_size",
                message="train_batch_size 256 is micro batch 8 (line 3) x accumulation 4 (line 4) x data parallel at"
                " world size 8 only",
            ),
        ),
        fixed="""{
  "train_micro_batch_size_per_gpu": 8,
  "gradient_accumulation_steps": 4
}
""",
    ),
)

GOOD = (
    Example(config='{"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 4}', launch=Launch()),
    Example(
        config='{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}',
        launch=Launch(world_size=1),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    batch, written = context.batch, context.batch.written
    if context.launch.world_size is not None or batch.fault is not None or batch.data_parallel.divisor_key is not None:
        return
    sizes = [written.get(key) for key in BATCH_KEYS]
    if not all(type(size) is int for size in sizes):
        return
    from ds_accum.batch import worlds_for_triple  # a clean config does without

    global_batch, micro, accumulation = (int(size) for size in sizes if size is not None)
    world = worlds_for_triple(global_batch, micro, accumulation, model_parallel_size=context.launch.model_parallel_size)
    if world is None:
        return
    yield Finding(
        at=(GLOBAL_BATCH,),
        message=f"{GLOBAL_BATCH} {shown(global_batch)} is micro batch {shown(micro)} ({context.line(MICRO_BATCH)}) x"
        f" accumulation {shown(accumulation)} ({context.line(ACCUMULATION)}) x data parallel at world size"
        f" {shown(world)} only",
        help=f"leave one of the three out, and DeepSpeed derives it at any world size; or check this one with"
        f" --world-size {shown(world)}",
        fix=Fix(title=f"remove {GLOBAL_BATCH}", changes=(RemoveKey((GLOBAL_BATCH,)),)),
    )


RULE = Rule(
    code="DSA108",
    name="batch-for-one-world-size",
    summary="the three batch sizes add up at one world size only",
    rationale=__doc__,
    when=When.LOAD,
    severity=Severity.INFO,
    check=check,
    bad=BAD,
    good=GOOD,
)
