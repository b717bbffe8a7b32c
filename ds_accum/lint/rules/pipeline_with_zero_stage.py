"""ZeRO shards gradients or parameters, and the script runs a pipeline.

A pipeline stage needs the gradients of all its micro-batches at once, while ZeRO-2 gives them away after each of them
and ZeRO-3 the parameters too. DeepSpeed's pipeline engine accepts stages 0 and 1, and says so only after it has built
the whole optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 2}
}
""",
        launch=Launch(world_size=2, pipeline_parallel_size=2),
        reports=(
            Report(
                at="zero_optimization.stage",
                message="ZeRO stage 2 (line 5) can't be combined with pipeline parallelism, here of size 2",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 1}
}
""",
        launch=Launch(world_size=2, pipeline_parallel_size=2),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    size = context.launch.pipeline_parallel_size
    if size > 1 and context.config.zero_stage in (2, 3):
        yield Finding(
            at=("zero_optimization", "stage"),
            message=f"{zero_stage(context)} can't be combined with pipeline parallelism, here of size {size}",
            help="use stage 0 or 1",
        )


RULE = Rule(
    code="DSA601",
    name="pipeline-with-zero-stage",
    summary="ZeRO-2 or ZeRO-3 is combined with pipeline parallelism",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
