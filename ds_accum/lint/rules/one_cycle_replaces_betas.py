"""OneCycle puts its own momentum in the place of the optimizer's betas.

It cycles the momentum against the learning rate unless `cycle_momentum` is false, and writes into the optimizer a pair
of `cycle_min_mom` to `cycle_max_mom` (0.8 to 0.9 unless given) and 0.99. The second is fixed: a beta2 of 0.999 or 0.95
that the config gives is gone from the first step on.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.built_from_config import optimizer_from_config, params_of, scheduler_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

_BETAS = ("optimizer", "params", "betas")
_SWITCH = ("scheduler", "params", "cycle_momentum")

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95]}},
  "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-4}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=False),
        reports=(
            Report(
                at="optimizer.params.betas",
                message="betas [0.9, 0.95] are replaced: OneCycle (line 5) cycles beta1 from 0.9 to 0.8 and sets beta2"
                " to 0.99, because cycle_momentum is true (the default)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95]}},
  "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-4, "cycle_momentum": false}}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95]}},
  "scheduler": {
    "type": "OneCycle",
    "params": {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-4, "cycle_momentum": false}
  }
}
""",
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    scheduled, built = scheduler_from_config(context), optimizer_from_config(context)
    if scheduled is None or built is None or context.block("scheduler").get("type") != "OneCycle":
        return
    params, betas = params_of(context.block("scheduler")), params_of(context.block("optimizer")).get("betas")
    switch = params.get("cycle_momentum", True)
    if not isinstance(betas, list) or len(betas) < 2 or not switch:
        return
    low, high = params.get("cycle_min_mom", 0.8), params.get("cycle_max_mom", 0.9)
    origin = context.line(*_SWITCH) if "cycle_momentum" in params else "the default"
    yield Finding(
        at=_BETAS,
        message=f"betas {shown(betas)} are replaced: OneCycle ({context.line('scheduler', 'type')}) cycles beta1 from"
        f" {shown(high)} to {shown(low)} and sets beta2 to 0.99, because cycle_momentum is {shown(switch)} ({origin})",
        help='set "cycle_momentum": false in scheduler.params, or remove the betas',
        depends_on=scheduled.and_only(built.depends_on) if scheduled.depends_on != built.depends_on else None,
        fix=Fix('set "cycle_momentum": false', (SetValue(_SWITCH, False),)),
    )


RULE = Rule(
    code="DSA544",
    name="one-cycle-replaces-betas",
    summary="the scheduler OneCycle cycles the momentum, and the optimizer's betas are lost",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
