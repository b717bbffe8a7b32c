"""A parameter of the scheduler has a value that it can't compute with.

A warm-up over 0 steps is the usual one: it worked for years as a warm-up over two, and is a `ValueError` since
0.19.3, as is any number of steps that is not an integer. Learning rates in quotes and a left-over "auto" fail when
the schedule is computed, some of them only after the first step. DeepSpeed never names the key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ds_accum.config.document import Path
from ds_accum.config.launch import Launch
from ds_accum.config.optimizer_values import ValueKind, kinds_of
from ds_accum.config.optimizers import NOT_FROM_A_FILE, scheduler_signature
from ds_accum.lint.built_from_config import scheduler_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.fix import Fix
from ds_accum.lint.mends import replaced, without_quotes
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted, what

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0}}
}
""",
        launch=Launch(world_size=1, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.params.warmup_num_steps",
                message="scheduler.params.warmup_num_steps must be an integer that is at least 1 for WarmupLR (line 4),"
                " but is the number 0",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 1}}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "1000", "warmup_max_lr": null}}
}
""",
        launch=Launch(world_size=1, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.params.total_num_steps",
                message="scheduler.params.total_num_steps must be a number for WarmupDecayLR (line 4), but is the"
                ' string "1000"',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 1000, "warmup_max_lr": null}}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "LRRangeTest", "params": {"lr_range_test_step_rate": "1.5"}}
}
""",
        launch=Launch(world_size=1, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.params.lr_range_test_step_rate",
                message="scheduler.params.lr_range_test_step_rate must be a number for LRRangeTest (line 4), but is the"
                ' string "1.5"',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "LRRangeTest", "params": {"lr_range_test_step_rate": 1.5}}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupLR", "params": [0.1]}
}
""",
        launch=Launch(world_size=1, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.params", message="scheduler.params must be an object of settings, but is the list [0.1]"
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 1e3, "warmup_max_lr": 1e-4, "warmup_min_lr": 0}}
}
""",
        launch=Launch(world_size=1, client_scheduler=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    scheduler, built = context.block("scheduler"), scheduler_from_config(context)
    name, params = scheduler.get("type"), scheduler.get("params")
    if built is None or not isinstance(name, str) or name in NOT_FROM_A_FILE or params is None:
        return
    if scheduler_signature(name) is None:
        return
    if not isinstance(params, Mapping):
        yield Finding(
            at=("scheduler", "params"),
            message=f"scheduler.params must be an object of settings, but is {what(params)}",
            help="write an object { ... }",
            depends_on=built.depends_on,
        )
        return
    for key, kind, when in _wrong(name, params, context):
        path: Path = ("scheduler", "params", key)
        yield Finding(
            at=path,
            message=f"{dotted(path)} must be {kind.wanted} for {name} ({context.line('scheduler', 'type')}), but is"
            f" {what(params[key])}",
            help=_help(kind, params[key]),
            depends_on=built.depends_on,
            when=when,
            fix=_fix(context, name, key, kind, params[key]),
        )


def _wrong(name: str, params: Mapping[Any, Any], context: LintContext) -> Iterator[tuple[str, ValueKind, When]]:
    found = set()
    for moment, when in (("start", When.START), ("first step", When.FIRST_STEP)):
        for key, kind in kinds_of(name, version=context.version, moment=moment).items():
            if key in params and key not in found and not kind.accepts(params[key]):
                found.add(key)
                yield key, kind, when


def _fix(context: LintContext, name: str, key: str, kind: ValueKind, value: Any) -> Fix | None:
    path = ("scheduler", "params", key)

    def accepts(new: Any) -> bool:
        return not any(wrong == key for wrong, _, _ in _wrong(name, {key: new}, context))

    if isinstance(value, str | list):
        return without_quotes(path, value, integer=kind.type == "integer", accepts=accepts)
    # No warm-up can't be said in a scheduler that warms up; one step is the least.
    is_zero = kind.type == "integer" and isinstance(value, int) and value == 0
    return replaced(path, 1, is_safe=False) if is_zero and accepts(1) else None


def _help(kind: ValueKind, value: Any) -> str:
    if value == "auto":
        return 'write a value, or leave the key out: only Hugging Face\'s Trainer and Accelerate fill in "auto"'
    if isinstance(value, str) and kind.type in ("number", "integer"):
        return "write the number without quotes"
    if kind.type == "integer" and isinstance(value, int) and value == 0:
        return "leave the scheduler out for no warm-up, or write 1"
    return "change the value, or leave the key out"


RULE = Rule(
    code="DSA513",
    name="unusable-scheduler-parameter",
    summary="a parameter of the scheduler has a value that it can't use",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
