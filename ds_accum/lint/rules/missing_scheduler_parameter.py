"""A scheduler lacks a parameter that it can't be built without.

`WarmupDecayLR` and `WarmupCosineLR` need `total_num_steps`, in optimizer steps: DeepSpeed can't know how long the
training will be. `OneCycle` needs both ends of its cycle. And `params` itself is needed, be it empty: DeepSpeed
unpacks it without looking, and a scheduler without one fails with "argument after ** must be a mapping, not
NoneType".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ds_accum.config.launch import Launch
from ds_accum.config.optimizers import NOT_FROM_A_FILE, scheduler_signature
from ds_accum.lint.built_from_config import params_of, scheduler_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 100}}
}
""",
        launch=Launch(world_size=1, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.params.total_num_steps",
                message="WarmupDecayLR (line 4) needs the parameter total_num_steps",
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupLR"}
}
""",
        reports=(
            Report(
                at="scheduler.params",
                message="WarmupLR (line 4) needs params, be they empty, unless the script passes its own scheduler",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupLR", "params": {}}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupLR", "params": {}}
}
""",
        launch=Launch(world_size=1, client_scheduler=False),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3}}
}
""",
        launch=Launch(world_size=1, client_scheduler=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    scheduler, built = context.block("scheduler"), scheduler_from_config(context)
    name, params = scheduler.get("type"), scheduler.get("params")
    signature = scheduler_signature(name) if isinstance(name, str) and name not in NOT_FROM_A_FILE else None
    if built is None or signature is None or not (params is None or isinstance(params, Mapping)):
        return
    who = f"{name} ({context.line('scheduler', 'type')})"
    missing = [key for key in sorted(signature.required) if not _has(context, key)]
    if name == "OneCycleLR" and not _has_length(params_of(scheduler)):
        missing.append("total_steps")
    if params is None and not missing and not _is_filled_in(context):
        yield Finding(
            at=("scheduler", "params"),
            message=f"{who} needs params, be they empty",
            help='add "params": {}',
            depends_on=built.depends_on,
            fix=Fix("add empty params", (SetValue(("scheduler", "params"), {}),), is_safe=True),
        )
    for key in missing:
        yield Finding(
            at=("scheduler", "params", key),
            message=f"{who} needs the parameter {key}",
            help=_help(key),
            depends_on=built.depends_on,
        )


def _has(context: LintContext, key: str) -> bool:
    """Whether a parameter is given, by the file or by the framework that fills it in."""
    return key in params_of(context.block("scheduler")) or ("scheduler", "params", key) in context.embedded.filled_in


def _is_filled_in(context: LintContext) -> bool:
    return any(path[:2] == ("scheduler", "params") for path in context.embedded.filled_in)


def _has_length(params: Mapping[str, object]) -> bool:
    """torch's OneCycleLR wants its length as one number or as two."""
    return params.get("total_steps") is not None or None not in (params.get("epochs"), params.get("steps_per_epoch"))


def _help(key: str) -> str:
    if key == "total_num_steps":
        return "add it: optimizer steps of the whole training, warm-up included"
    if key == "total_steps":
        return "add it, or epochs and steps_per_epoch"
    return "add it"


RULE = Rule(
    code="DSA512",
    name="missing-scheduler-parameter",
    summary="a scheduler lacks a parameter that it can't be built without",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
