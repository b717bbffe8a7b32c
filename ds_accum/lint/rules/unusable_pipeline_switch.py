"""A setting of the pipeline engine has a value that it can't use.

`pipe_partitioned` and `grad_partitioned` are asserted to be booleans, with an empty message; the string "true" or the
number 1 won't do. `activation_checkpoint_interval` is compared with 0 and then counted up to: a string fails at once, a
fraction when the layers are counted. None of this is looked at without a pipeline module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.fix import Fix
from ds_accum.lint.mends import replaced, without_quotes
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted, what

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "pipeline": {"pipe_partitioned": "true"}
}
""",
        launch=Launch(world_size=2, pipeline_parallel_size=2),
        reports=(
            Report(
                at="pipeline.pipe_partitioned",
                message='pipeline.pipe_partitioned must be true or false, but is the string "true"',
            ),
        ),
        fixed="""{
  "train_micro_batch_size_per_gpu": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "pipeline": {"pipe_partitioned": true}
}
""",
    ),
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "pipeline": {"activation_checkpoint_interval": 0.5, "grad_partitioned": null}
}
""",
        launch=Launch(world_size=2, pipeline_parallel_size=2),
        reports=(
            Report(
                at="pipeline.activation_checkpoint_interval",
                message="pipeline.activation_checkpoint_interval must be an integer, but is the number 0.5",
            ),
            Report(
                at="pipeline.grad_partitioned",
                message="pipeline.grad_partitioned must be true or false, but is null",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "pipeline": {"pipe_partitioned": false, "activation_checkpoint_interval": 1},
  "zero_optimization": {"stage": 1}
}
""",
        launch=Launch(world_size=2, pipeline_parallel_size=2),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    pipeline = context.block("pipeline")
    if context.launch.pipeline_parallel_size == 1 or not pipeline.present or not pipeline.is_mapping:
        return
    for key in ("pipe_partitioned", "grad_partitioned"):
        if pipeline.written(key) and not isinstance(pipeline[key], bool):
            yield _finding(key, "true or false", pipeline[key])
    key = "activation_checkpoint_interval"
    interval = pipeline.get(key, 0)
    if isinstance(interval, float):
        if interval > 0:
            # Counted up to while the engine is built since 0.14.5, before that in the first forward.
            yield _finding(
                key, "an integer", interval, When.START if context.version >= (0, 14, 5) else When.FIRST_STEP
            )
    elif not isinstance(interval, int):
        yield _finding(key, "an integer", interval)


def _finding(key: str, wanted: str, value: Any, when: When = When.START) -> Finding:
    path = ("pipeline", key)
    return Finding(
        at=path,
        message=f"{dotted(path)} must be {wanted}, but is {what(value)}",
        help="change the value, or leave the key out",
        when=when,
        fix=_fix(path, wanted, value),
    )


def _fix(path: tuple[str, str], wanted: str, value: Any) -> Fix | None:
    if wanted == "an integer":
        return without_quotes(path, value, integer=True)
    words = {"true": True, "false": False, "1": True, "0": False}
    switch = words.get(str(value).lower())
    return replaced(path, switch) if switch is not None else None


RULE = Rule(
    code="DSA602",
    name="unusable-pipeline-switch",
    summary="a setting of the pipeline engine has a value that it can't use",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
