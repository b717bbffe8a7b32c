"""`scheduler.params` holds a key that the scheduler does not take.

DeepSpeed unpacks the block into the scheduler's constructor, so that a key too many is a `TypeError` once the engine is
built. The five warm-up schedulers look alike and are not: `WarmupCosineLR` scales the optimizer's own learning rate and
knows no `warmup_max_lr`, `WarmupLR` no `total_num_steps`, and none knows a `warmup_ratio`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ds_accum.config.launch import Launch
from ds_accum.config.optimizers import (
    NOT_FROM_A_FILE,
    deepspeed_schedulers,
    scheduler_signature,
    torch_schedulers,
)
from ds_accum.config.spelling import closest_word
from ds_accum.lint.built_from_config import params_of, scheduler_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.fix import Fix
from ds_accum.lint.mends import removed, renamed
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 1000, "warmup_max_lr": 1e-4}}
}
""",
        launch=Launch(world_size=1, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.params.warmup_max_lr",
                message='WarmupCosineLR (line 4) takes no parameter "warmup_max_lr"',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 1000}}
}
""",
    ),
    Example(
        config='{"train_batch_size": 8, "scheduler": {"type": "WarmupLR", "params": {"warmup_steps": 100}}}',
        reports=(
            Report(
                at="scheduler.params.warmup_steps",
                message='WarmupLR (line 1) takes no parameter "warmup_steps", if the script passes an optimizer and no'
                " scheduler",
            ),
        ),
        fixed='{"train_batch_size": 8, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100}}}',
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 1000, "warmup_max_lr": 1e-4}}
}
""",
        launch=Launch(world_size=1, client_scheduler=False),
    ),
)

UNLESS_TORCH_IS_OLD = "unless torch is older than 2.7"


def check(context: LintContext) -> Iterator[Finding]:
    scheduler, built = context.block("scheduler"), scheduler_from_config(context)
    name = scheduler.get("type")
    if built is None or not isinstance(name, str) or name in NOT_FROM_A_FILE:
        return
    signature = scheduler_signature(name)
    if signature is None:
        return
    for key in params_of(scheduler):
        if key in signature.parameters:
            continue
        # All of torch's schedulers had it up to 2.6.
        is_gone = key == "verbose" and name in torch_schedulers()
        yield Finding(
            at=("scheduler", "params", key),
            on_key=True,
            message=f"{name} ({context.line('scheduler', 'type')}) takes no parameter {shown(str(key))}",
            help=_help(name, str(key)),
            depends_on=built.and_only(UNLESS_TORCH_IS_OLD) if is_gone else built.depends_on,
            fix=_fix(name, key, params_of(scheduler), is_gone),
        )


def _meant(name: str, key: str) -> str | None:
    signature = scheduler_signature(name)
    return closest_word(key, signature.parameters) if signature is not None else None


def _fix(name: str, key: str, params: Mapping[Any, Any], is_gone: bool) -> Fix | None:
    meant, at = _meant(name, str(key)), ("scheduler", "params", key)
    if meant is not None:
        return renamed(at, meant, beside=params)
    return removed(at, is_safe=is_gone)  # "verbose" only printed


def _help(name: str, key: str) -> str:
    meant = _meant(name, key)
    if meant is not None:
        return f"did you mean {shown(meant)}?"
    takers = [
        other for other in deepspeed_schedulers() if (known := scheduler_signature(other)) and key in known.parameters
    ]
    return f"remove it; it belongs to {', '.join(takers)}" if takers else "remove it"


RULE = Rule(
    code="DSA511",
    name="unknown-scheduler-parameter",
    summary="scheduler.params holds a key that the scheduler does not take",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
