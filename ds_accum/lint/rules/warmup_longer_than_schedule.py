"""The warm-up is longer than the whole schedule.

`total_num_steps` and `warmup_num_steps` are both counted in optimizer steps from the start. If the first is smaller,
the learning rate is still rising when the schedule is over, never reaches its peak, and drops to the end value as soon
as the warm-up ends. DeepSpeed logs a line and goes on. A missing `warmup_num_steps` is 1000.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.built_from_config import params_of, scheduler_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import is_number, number

DEFAULT_WARMUP = 1000

_PARAMS = ("scheduler", "params")

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": 1e-4, "total_num_steps": 3, "warmup_num_steps": 9}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.params.warmup_num_steps",
                message="warmup_num_steps 9 (line 5) is more than total_num_steps 3 (line 5): the learning rate is"
                " still rising when the schedule ends",
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 500}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.params.total_num_steps",
                message="warmup_num_steps 1000 (the default) is more than total_num_steps 500 (line 5): the learning"
                " rate is still rising when the schedule ends",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": 1e-4, "total_num_steps": 9, "warmup_num_steps": 2}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    built, kind = scheduler_from_config(context), context.block("scheduler").get("type")
    if built is None or kind not in ("WarmupDecayLR", "WarmupCosineLR"):
        return
    params = params_of(context.block("scheduler"))
    total, given = params.get("total_num_steps"), "warmup_num_steps" in params
    warmup = params.get("warmup_num_steps", DEFAULT_WARMUP)
    filled_in = (*_PARAMS, "warmup_num_steps") in context.embedded.filled_in
    if filled_in or not is_number(total) or not is_number(warmup) or not total < warmup:
        return
    origin = context.line(*_PARAMS, "warmup_num_steps") if given else "the default"
    yield Finding(
        at=(*_PARAMS, "warmup_num_steps" if given else "total_num_steps"),
        message=f"warmup_num_steps {number(warmup)} ({origin}) is more than total_num_steps {number(total)}"
        f" ({context.line(*_PARAMS, 'total_num_steps')}): the learning rate is still rising when the schedule ends",
        help='give "warmup_num_steps" less than total_num_steps; both count optimizer steps',
        depends_on=built.depends_on,
    )


RULE = Rule(
    code="DSA541",
    name="warmup-longer-than-schedule",
    summary="the warm-up takes more steps than the whole schedule",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
