"""A warm-up over one step, meant as none, is one over two whose updates are lost.

DeepSpeed's warm-up has at least two steps. The engine starts it at `warmup_min_lr`, and computes the same value once
more after the first optimizer step: with the usual 0 the first two global batches of every warm-up leave the model as
it is. A warm-up of 1000 steps does not miss them; a schedule that wants no warm-up is better off without one.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.built_from_config import params_of, scheduler_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.rule import Example, Report, Rule

_AT = ("scheduler", "params", "warmup_num_steps")

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 1}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.params.warmup_num_steps",
                message="WarmupLR (line 5) takes warmup_num_steps 1 for 2, and makes the first two updates at the"
                " learning rate that it starts from",
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
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    built, kind = scheduler_from_config(context), context.block("scheduler").get("type")
    if built is None or kind not in ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR"):
        return
    steps = params_of(context.block("scheduler")).get("warmup_num_steps")
    if type(steps) is not int or steps != 1:
        return
    yield Finding(
        at=_AT,
        message=f"{kind} ({context.line('scheduler', 'type')}) takes warmup_num_steps 1 for 2, and makes the first two"
        " updates at the learning rate that it starts from",
        help="for no warm-up, leave the scheduler out, or start it from the learning rate of its end",
        depends_on=built.depends_on,
    )


RULE = Rule(
    code="DSA543",
    name="one-step-warmup",
    summary="a warm-up over one step is one over two",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.INFO,
    check=check,
    bad=BAD,
    good=GOOD,
)
