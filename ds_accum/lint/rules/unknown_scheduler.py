"""The config names a learning rate scheduler that neither DeepSpeed nor torch has.

DeepSpeed's own are WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle and LRRangeTest; every other name is looked up in
`torch.optim.lr_scheduler`. The case counts.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.optimizers import (
    deepspeed_schedulers,
    scheduler_signature,
    torch_schedulers,
    uncallable_schedulers,
)
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.scheduler_launch import depends_on, is_never_built
from ds_accum.lint.wording import did_you_mean, shown

_LAUNCH = Launch(world_size=1, client_optimizer=False, client_scheduler=False)

_CONFIG = """{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "%s", "params": {"total_num_steps": 100, "warmup_num_steps": 10}}
}
"""

BAD = (
    Example(
        config=_CONFIG % "WarmupCosine",
        launch=_LAUNCH,
        reports=(Report(at="scheduler.type", message='neither DeepSpeed nor torch has a scheduler "WarmupCosine"'),),
    ),
)

GOOD = (
    Example(config=_CONFIG % "WarmupCosineLR", launch=_LAUNCH),
    Example(
        config=_CONFIG % "WarmupCosine", launch=Launch(world_size=1, client_optimizer=False, client_scheduler=True)
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    name = context.block("scheduler").get("type")
    if not isinstance(name, str) or is_never_built(context) or scheduler_signature(name) is not None:
        return
    if name in uncallable_schedulers():
        message = f"{shown(name)} is found where DeepSpeed looks for schedulers, but is none"
    else:
        message = f"neither DeepSpeed nor torch has a scheduler {shown(name)}"
    known = {scheduler.lower(): scheduler for scheduler in (*torch_schedulers(), *deepspeed_schedulers())}
    meant = known.get(did_you_mean(name, known) or "")
    yield Finding(
        at=("scheduler", "type"),
        message=message,
        help=f'did you mean "{meant}"?' if meant else f"use one of {', '.join(deepspeed_schedulers())}",
        depends_on=depends_on(context),
    )


RULE = Rule(
    code="DSA510",
    name="unknown-scheduler",
    summary="the config names a scheduler that neither DeepSpeed nor torch has",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
