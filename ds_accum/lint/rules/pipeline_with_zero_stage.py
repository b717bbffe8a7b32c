"""A pipeline with ZeRO stage 2 or 3.

Pipeline stages accumulate whole gradients over the micro-batches in flight; stage 2 and 3 keep only a shard of each.
The pipeline engine asserts it after the ZeRO optimizer has been built.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule

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
                message="ZeRO stage 2 (line 5) can't run in a pipeline of 2 stages",
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
    stages = context.launch.pipeline_parallel_size
    stage = context.config.zero_stage
    if stages > 1 and stage is not None and stage >= 2:
        yield Finding(
            at=("zero_optimization", "stage"),
            message=f"ZeRO stage {stage} ({context.line('zero_optimization', 'stage')}) can't run in a pipeline of"
            f" {stages} stages",
            help="use ZeRO stage 0 or 1, or no pipeline",
        )


RULE = Rule(
    code="DSA601",
    name="pipeline-with-zero-stage",
    summary="a pipeline with ZeRO stage 2 or 3",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
