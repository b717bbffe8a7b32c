"""The accumulation steps of the config give way to ZenFlow's update interval.

Where ZenFlow is on, the engine overwrites `gradient_accumulation_steps` with `zenflow.update_interval`, without a word,
after the batch has been computed. A config that accumulates four micro-batches then takes an optimizer step after every
one, or after every second, from a batch that is smaller than `train_batch_size`; only DeepSpeed's own log still names
the old numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.config.resolve import ACCUMULATION, NumberOrigin
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.launch_facts import accumulation_steps
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import setting
from ds_accum.lint.wording import number

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu"},
    "zenflow": {"update_interval": 2}
  }
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="zero_optimization.zenflow.update_interval",
                message="zenflow replaces gradient_accumulation_steps 4 (line 4) by update_interval 2 (line 9), so a"
                " step is taken from fewer samples than train_batch_size",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu"},
    "zenflow": {"update_interval": 4}
  }
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
)

_AT = ("zero_optimization", "zenflow", "update_interval")


def check(context: LintContext) -> Iterator[Finding]:
    zenflow, stage = support.zenflow(context.config), context.config.zero_stage
    if zenflow is None or zenflow.errors or stage not in (1, 2, 3) or context.launch.pipeline_parallel_size > 1:
        return
    if context.batch.fault is not None:
        return  # refused before
    interval, steps, said = zenflow["update_interval"], accumulation_steps(context), _origin(context)
    if not isinstance(interval, int) or steps is None or steps < 2 or interval == steps:
        return
    than = "fewer" if interval < steps else "more"
    yield Finding(
        at=_AT,
        message=f"zenflow replaces {ACCUMULATION} {number(steps)} ({said}) by {setting(context, interval, *_AT)}, so a"
        f" step is taken from {than} samples than train_batch_size",
        help=f"set update_interval to {number(steps)}, or do without accumulation",
    )


def _origin(context: LintContext) -> str:
    return context.line(ACCUMULATION) if context.batch.origin(ACCUMULATION) is NumberOrigin.WRITTEN else "derived"


RULE = Rule(
    code="DSA214",
    name="zenflow-replaces-accumulation",
    summary="the accumulation steps of the config give way to ZenFlow's update interval",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    bad=BAD,
    good=GOOD,
    severity=Severity.WARNING,
)
