"""The scheduler trains at a learning rate of its own, not at the optimizer's.

WarmupLR and WarmupDecayLR rise to `warmup_max_lr` and write it into every parameter group, whatever `lr` the optimizer
has. WarmupDecayLR takes 0.001 where the key is missing: a fine-tuning at 1e-5 runs a hundred times too fast. WarmupLR
did so too before DeepSpeed 0.17.2, and takes the optimizer's since.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.config.optimizers import MUON, resolve_optimizer
from ds_accum.lint.built_from_config import params_of, scheduler_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.rules.default_learning_rate import DEFAULTS
from ds_accum.lint.wording import is_number

DEFAULT_MAX = 1e-3

_MAX = ("scheduler", "params", "warmup_max_lr")
_LR = ("optimizer", "params", "lr")

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 100, "warmup_num_steps": 2}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.params",
                message="WarmupDecayLR (line 5) rises to warmup_max_lr 0.001 (the default), not to the optimizer's lr"
                " 1e-05 (line 4)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 100, "warmup_num_steps": 2, \
"warmup_max_lr": 1e-05}}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 6e-4, "warmup_num_steps": 2}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.params.warmup_max_lr",
                message="WarmupLR (line 5) rises to warmup_max_lr 0.0006 (line 5), not to the optimizer's lr 0.0001"
                " (line 4)",
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 100, "warmup_num_steps": 2}}
}
""",
        launch=Launch(world_size=1, client_optimizer=True, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.params",
                message="WarmupDecayLR (line 4) rises to warmup_max_lr 0.001 (the default), whatever lr the script's"
                " optimizer has",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "scheduler": {
    "type": "WarmupDecayLR",
    "params": {"total_num_steps": 100, "warmup_num_steps": 2, "warmup_max_lr": 1e-5}
  }
}
""",
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=False),
    ),
    # Takes the optimizer's.
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 2}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    built, kind = scheduler_from_config(context), context.block("scheduler").get("type")
    if built is None or kind not in ("WarmupLR", "WarmupDecayLR") or _MAX in context.embedded.filled_in:
        return
    params = params_of(context.block("scheduler"))
    given = "warmup_max_lr" in params
    if not given and kind == "WarmupLR" and context.version >= (0, 17, 2):
        return
    peak = params.get("warmup_max_lr", DEFAULT_MAX)
    if not is_number(peak):
        return  # null takes the optimizer's
    name = f"{kind} ({context.line('scheduler', 'type')})"
    said = f"warmup_max_lr {peak:g} ({context.line(*_MAX) if given else 'the default'})"
    other, rate = _other_rate(context, given)
    if other is None or (rate is not None and math.isclose(rate, peak)):
        return
    yield Finding(
        at=_MAX if given else _MAX[:-1],
        on_key=not given,
        message=f"{name} rises to {said}, {other}",
        help="give both the same value" if given else 'add "warmup_max_lr" with the learning rate that is meant',
        depends_on=built.depends_on,
        fix=None if given or rate is None else Fix(f'add "warmup_max_lr": {rate:g}', (SetValue(_MAX, rate),)),
    )


def _other_rate(context: LintContext, given: bool) -> tuple[str | None, float | None]:
    """The learning rate that is not taken, in words, and its number where it is known; no words: nothing to say."""
    if context.builds_optimizer_from_config is False:
        # What the script wants is not known; that a default is put in its place is.
        owner = "script" if support.has_optimizer(context.config, context.launch) else "client"
        return (None if given else f"whatever lr the {owner}'s optimizer has"), None
    if _LR in context.embedded.filled_in:
        return (None if given else "not to the learning rate that the framework fills in"), None
    params: Mapping[Any, Any] = params_of(context.block("optimizer"))
    if "lr" in params:
        rate = params["lr"]
        if not is_number(rate):
            return None, None
        return f"not to the optimizer's lr {rate:g} ({context.line(*_LR)})", float(rate)
    choice = resolve_optimizer(context.config)
    if given or choice is None or choice.name == MUON or choice.full_name not in DEFAULTS:
        return None, None
    default = DEFAULTS[choice.full_name]
    return f"not to the optimizer's lr {default:g} (the default)", default


RULE = Rule(
    code="DSA540",
    name="scheduler-overrides-learning-rate",
    summary="the scheduler rises to another learning rate than the optimizer's",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
