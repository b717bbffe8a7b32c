"""The optimizer has no learning rate of its own, so its class brings one.

Without `lr` in `optimizer.params` DeepSpeed says nothing, and the class's default is used: 0.001 for Adam, 0.02 for
the matrices of Muon, 1.0 for Adadelta. Nothing is said where a scheduler of the config sets the learning rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ds_accum.config.launch import Launch
from ds_accum.config.optimizers import MUON, resolve_optimizer
from ds_accum.lint.built_from_config import class_behind_the_type, optimizer_from_config, params_of
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule

DEFAULTS: Mapping[str, float] = {
    "FusedAdam": 1e-3,
    "DeepSpeedCPUAdam": 1e-3,
    "ZenFlowCPUAdam": 1e-3,
    "FusedLamb": 1e-3,
    "FusedLion": 1e-3,
    "DeepSpeedCPULion": 1e-3,
    "DeepSpeedCPUAdagrad": 1e-2,
    "torch.optim.ASGD": 1e-2,
    "torch.optim.Adadelta": 1.0,
    "torch.optim.Adafactor": 1e-2,
    "torch.optim.Adagrad": 1e-2,
    "torch.optim.Adam": 1e-3,
    "torch.optim.AdamW": 1e-3,
    "torch.optim.Adamax": 2e-3,
    "torch.optim.NAdam": 2e-3,
    "torch.optim.RAdam": 1e-3,
    "torch.optim.RMSprop": 1e-2,
    "torch.optim.Rprop": 1e-2,
    "torch.optim.SGD": 1e-3,
}
"""The learning rates that the classes bring; those of torch are of its 2.x releases."""

SETS_THE_RATE = ("WarmupLR", "WarmupDecayLR", "OneCycle", "LRRangeTest")
"""The schedulers whose own parameters can hold the learning rate."""

_LR = ("optimizer", "params", "lr")

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"weight_decay": 0.1}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.params",
                message='the learning rate is 0.001, the default of FusedAdam, which DeepSpeed builds for "AdamW"'
                " (line 3): optimizer.params has no lr",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"weight_decay": 0.1, "lr": 0.001}}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW"},
  "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 5000, "warmup_max_lr": 1e-4}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    built, optimizer = optimizer_from_config(context), context.block("optimizer")
    params = params_of(optimizer)
    if built is None or "lr" in params or {"muon_lr", "adam_lr"} & params.keys() or _LR in context.embedded.filled_in:
        return
    if context.launch.framework in ("huggingface", "accelerate"):
        return  # where a learning rate of their own is lost, a rule of its own says more
    if "params" in optimizer.raw and not isinstance(optimizer.raw["params"], Mapping):
        return
    if context.block("scheduler").get("type") in SETS_THE_RATE and params_of(context.block("scheduler")):
        return
    choice = resolve_optimizer(context.config)
    if choice is None:
        return
    if choice.name == MUON:
        rate = "0.02 for matrices and 0.0003 for the rest, the defaults"
    elif choice.full_name in DEFAULTS:
        rate = f"{DEFAULTS[choice.full_name]:g}, the default"
    else:
        return
    fix = None
    if choice.name != MUON:
        default = DEFAULTS[choice.full_name]
        fix = Fix(f'write "lr": {default:g}, which is what runs', (SetValue(_LR, default),), is_safe=True)
    yield Finding(
        at=("optimizer", "params"),
        on_key=True,
        message=f"the learning rate is {rate} of {class_behind_the_type(context, choice)}: optimizer.params has no lr",
        help='add "lr" to optimizer.params',
        depends_on=built.depends_on,
        fix=fix,
    )


RULE = Rule(
    code="DSA531",
    name="default-learning-rate",
    summary="no learning rate is given, and the optimizer's own default is used",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.INFO,
    check=check,
    bad=BAD,
    good=GOOD,
)
