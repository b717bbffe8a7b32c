"""Random layer token dropping is switched on, and its schedule is not complete.

Where `random_ltd.enabled` is true, be it inside blocks that are themselves switched off, the engine builds the schedule
at start and reads its keys without looking whether they are there: "KeyError: 'total_layer_num'", then the next one,
one launch for each. The two of `schedule_config` are read at the first step, as long as the number of tokens still
grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ds_accum.config.document import Path
from ds_accum.config.paths import NOTHING, mapping_at, value_at
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted, shown, what

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "data_efficiency": {"data_routing": {"random_ltd": {"enabled": true, "total_layer_num": 24}}}
}
""",
        reports=(
            Report(
                at="data_efficiency.data_routing.random_ltd",
                message="random_ltd is enabled without random_ltd_layer_num, random_ltd_schedule.min_value,"
                " random_ltd_schedule.max_value, random_ltd_schedule.schedule_type,"
                " random_ltd_schedule.schedule_config.require_steps and"
                " random_ltd_schedule.schedule_config.seq_per_step",
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "data_efficiency": {
    "data_routing": {
      "random_ltd": {
        "enabled": true,
        "total_layer_num": 24,
        "random_ltd_layer_num": 22,
        "random_ltd_schedule": {
          "min_value": 128,
          "max_value": 2048,
          "schedule_type": "fixed_root",
          "schedule_config": {"require_steps": 200000, "seq_per_step": 16}
        }
      }
    }
  }
}
""",
        reports=(
            Report(
                at="data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_type",
                message='random_ltd_schedule.schedule_type must be "fixed_linear", but is the string "fixed_root"',
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "data_efficiency": {
    "data_routing": {
      "random_ltd": {
        "enabled": true,
        "total_layer_num": 24,
        "random_ltd_layer_num": 22,
        "random_ltd_schedule": {
          "min_value": 128,
          "max_value": 2048,
          "schedule_type": "fixed_linear",
          "schedule_config": {"require_steps": 200000, "seq_per_step": 16}
        }
      }
    }
  }
}
"""
    ),
)

_AT: Path = ("data_efficiency", "data_routing", "random_ltd")
_SCHEDULE, _SETTINGS = "random_ltd_schedule", "schedule_config"
# What `RandomLTDScheduler` (data_pipeline/data_routing/scheduler.py) reads when it is built, and at the first step.
_AT_START: tuple[Path, ...] = (
    ("total_layer_num",),
    ("random_ltd_layer_num",),
    (_SCHEDULE, "min_value"),
    (_SCHEDULE, "max_value"),
    (_SCHEDULE, "schedule_type"),
)
_AT_FIRST_STEP: tuple[Path, ...] = ((_SCHEDULE, _SETTINGS, "require_steps"), (_SCHEDULE, _SETTINGS, "seq_per_step"))


def check(context: LintContext) -> Iterator[Finding]:
    random_ltd = mapping_at(context.values, _AT)
    if not random_ltd.get("enabled"):
        return
    if value_at(random_ltd, ("layer_token_lr_schedule", "enabled")):
        yield Finding(
            at=(*_AT, "layer_token_lr_schedule", "enabled"),
            message="random_ltd.layer_token_lr_schedule is enabled, and DeepSpeed has not implemented it",
            help="remove it",
        )
    schedule = mapping_at(random_ltd, (_SCHEDULE,))
    missing = [path for path in _AT_START if not _has(random_ltd, path)]
    without_settings = [path for path in _AT_FIRST_STEP if not _has(random_ltd, path)]
    if missing or without_settings:
        at_start = bool(missing) or _SETTINGS not in schedule
        if at_start or _grows(schedule):
            yield Finding(
                at=_AT,
                on_key=True,
                when=When.START if at_start else When.FIRST_STEP,
                message=f"random_ltd is enabled without {_all_of([*missing, *without_settings])}",
                help="add them, or set enabled to false",
            )
    elif _grows(schedule):
        yield from _unusable(schedule)


def _unusable(schedule: Mapping[str, Any]) -> Iterator[Finding]:
    """Values that the first step fails with while the number of tokens grows."""
    kind = schedule["schedule_type"]
    if kind != "fixed_linear":
        yield Finding(
            at=(*_AT, _SCHEDULE, "schedule_type"),
            when=When.FIRST_STEP,
            message=f'{_SCHEDULE}.schedule_type must be "fixed_linear", but is {what(kind)}',
            help="DeepSpeed has no other schedule",
        )
        return
    for path in _AT_FIRST_STEP:
        if schedule[_SETTINGS][path[-1]] == 0:
            yield Finding(
                at=(*_AT, *path),
                when=When.FIRST_STEP,
                message=f"{dotted(path)} is {shown(schedule[_SETTINGS][path[-1]])}, and DeepSpeed divides by it",
                help="give the number of steps"
                if path[-1] == "require_steps"
                else "give a number of tokens, such as 16",
            )


def _grows(schedule: Mapping[str, Any]) -> bool:
    """Whether the first step computes a number of tokens; one that starts at its end is left alone."""
    smallest, largest = schedule.get("min_value"), schedule.get("max_value")
    return isinstance(smallest, int | float) and isinstance(largest, int | float) and smallest < largest


def _has(random_ltd: Mapping[str, Any], path: Path) -> bool:
    return value_at(random_ltd, path, NOTHING) is not NOTHING


def _all_of(paths: list[Path]) -> str:
    said = [dotted(path) for path in paths]
    return " and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)


RULE = Rule(
    code="DSA016",
    name="incomplete-random-ltd",
    summary="random layer token dropping is switched on without a complete schedule",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
    references=("https://www.deepspeed.ai/docs/config-json/#data-efficiency",),
)
