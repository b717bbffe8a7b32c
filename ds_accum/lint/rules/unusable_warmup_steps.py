"""`warmup_num_steps` of a warm-up scheduler is no positive integer.

Since 0.19.3 DeepSpeed refuses 0, fractions and strings; before, it divided by the logarithm of what it was given. To
train without a warm-up, leave the scheduler out: 1 is silently taken for 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.scheduler_launch import depends_on, is_never_built
from ds_accum.lint.wording import shown

_LAUNCH = Launch(world_size=1, client_optimizer=False, client_scheduler=False)

_CONFIG = """{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": %s}}
}
"""

BAD = (
    Example(
        config=_CONFIG % "0",
        launch=_LAUNCH,
        reports=(
            Report(
                at="scheduler.params.warmup_num_steps",
                message="scheduler.params.warmup_num_steps must be an integer of at least 1, but is 0",
            ),
        ),
    ),
)

GOOD = (Example(config=_CONFIG % "1e3", launch=_LAUNCH),)

_WARM_UP = frozenset({"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"})


def check(context: LintContext) -> Iterator[Finding]:
    scheduler = context.block("scheduler")
    name, params = scheduler.get("type"), scheduler.get("params")
    if not isinstance(name, str) or name not in _WARM_UP or not isinstance(params, Mapping):
        return
    if context.version < (0, 19, 3) or is_never_built(context) or "warmup_num_steps" not in params:
        return
    steps = params["warmup_num_steps"]
    if isinstance(steps, int) and steps > 0:
        return
    yield Finding(
        at=("scheduler", "params", "warmup_num_steps"),
        message=f"scheduler.params.warmup_num_steps must be an integer of at least 1, but is {shown(steps)}",
        help="write a positive integer, or leave the scheduler out to train without a warm-up",
        depends_on=depends_on(context),
    )


RULE = Rule(
    code="DSA513",
    name="unusable-warmup-steps",
    summary="warmup_num_steps is no positive integer",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
