"""OneCycle is given half of a decay, and does not decay.

After its cycle the learning rate falls by `decay_lr_rate` every `decay_step_size` steps. The step size is 0 and the
rate 0 unless given, and either alone switches the decay off: the rest of the training runs at `cycle_min_lr`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.built_from_config import params_of, scheduler_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import is_number, shown

_PARAMS = ("scheduler", "params")

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {
    "type": "OneCycle",
    "params": {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-4, "cycle_first_step_size": 1, "decay_lr_rate": 0.5}
  }
}
""",
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.params.decay_lr_rate",
                message="decay_lr_rate 0.5 has no effect while decay_step_size is 0 (the default): OneCycle (line 6)"
                " does not decay the learning rate after its cycle",
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {
    "type": "OneCycle",
    "params": {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-4, "decay_step_size": 1000}
  }
}
""",
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.params.decay_step_size",
                message="decay_step_size 1000 has no effect while decay_lr_rate is 0 (the default): OneCycle (line 6)"
                " does not decay the learning rate after its cycle",
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
  "scheduler": {
    "type": "OneCycle",
    "params": {
      "cycle_min_lr": 1e-5,
      "cycle_max_lr": 1e-4,
      "cycle_first_step_size": 1,
      "decay_lr_rate": 0.5,
      "decay_step_size": 1
    }
  }
}
""",
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    built = scheduler_from_config(context)
    if built is None or context.block("scheduler").get("type") != "OneCycle":
        return
    params = params_of(context.block("scheduler"))
    rates = ("decay_lr_rate", "decay_mom_rate")
    step_size = params.get("decay_step_size", 0)
    if is_number(step_size) and not step_size:
        for rate in rates:
            if is_number(params.get(rate)) and params[rate]:
                yield _half(context, built.depends_on, rate, "decay_step_size")
    elif is_number(step_size) and not any(params.get(rate) for rate in rates):
        yield _half(context, built.depends_on, "decay_step_size", "decay_lr_rate")


def _half(context: LintContext, depends_on: str | None, given: str, missing: str) -> Finding:
    params = params_of(context.block("scheduler"))
    what = "momentum" if given == "decay_mom_rate" else "learning rate"
    origin = context.line(*_PARAMS, missing) if missing in params else "the default"
    return Finding(
        at=(*_PARAMS, given),
        message=f"{given} {shown(params[given])} has no effect while {missing} is {shown(params.get(missing, 0))}"
        f" ({origin}): OneCycle ({context.line('scheduler', 'type')}) does not decay the {what} after its cycle",
        help=f'give "{missing}" too, or remove {given}',
        depends_on=depends_on,
    )


RULE = Rule(
    code="DSA545",
    name="one-cycle-without-decay",
    summary="the scheduler OneCycle is given a decay rate without a step size, or the other way round",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
