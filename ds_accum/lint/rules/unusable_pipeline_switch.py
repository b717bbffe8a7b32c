"""A switch of the `pipeline` block is no boolean.

The pipeline engine asserts that `pipe_partitioned` and `grad_partitioned` are true or false, with an empty message; 1
and "true" are neither. Without a pipeline nobody looks at them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import what

_CONFIG = """{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "pipeline": {"pipe_partitioned": %s}
}
"""

BAD = (
    Example(
        config=_CONFIG % '"false"',
        launch=Launch(world_size=2, pipeline_parallel_size=2),
        reports=(
            Report(
                at="pipeline.pipe_partitioned",
                message='pipeline.pipe_partitioned must be true or false, but is the string "false"',
            ),
        ),
    ),
)

GOOD = (
    Example(config=_CONFIG % "false", launch=Launch(world_size=2, pipeline_parallel_size=2)),
    Example(config=_CONFIG % '"false"'),
)


def check(context: LintContext) -> Iterator[Finding]:
    if context.launch.pipeline_parallel_size == 1:
        return
    pipeline = context.block("pipeline")
    for name in ("pipe_partitioned", "grad_partitioned"):
        value = pipeline.get(name)
        if pipeline.is_mapping and not isinstance(value, bool):
            yield Finding(
                at=("pipeline", name),
                message=f"pipeline.{name} must be true or false, but is {what(value)}",
                help="write true or false, or leave it out",
            )


RULE = Rule(
    code="DSA602",
    name="unusable-pipeline-switch",
    summary="a switch of the pipeline block is no boolean",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
