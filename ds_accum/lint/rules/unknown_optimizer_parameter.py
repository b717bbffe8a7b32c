"""`optimizer.params` holds a key that the optimizer does not take, or lacks one that it needs.

DeepSpeed unpacks the block into the constructor, so an unknown key is a `TypeError` when every rank is up. Which
class it is depends on more than its name: Adam and AdamW are FusedAdam on the accelerator, DeepSpeedCPUAdam while the
optimizer is offloaded, and torch's own with `torch_adam`, and each takes other keys. Muon is the exception: it
ignores what it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ds_accum.config.launch import Launch
from ds_accum.config.optimizers import OptimizerChoice, resolve_optimizer
from ds_accum.config.spelling import closest_word
from ds_accum.lint.built_from_config import class_behind_the_type, optimizer_from_config, params_of
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
  "optimizer": {"type": "AdamW", "params": {"learning_rate": 1e-4}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.params.learning_rate",
                message='FusedAdam, which DeepSpeed builds for "AdamW" (line 3), takes no parameter "learning_rate"'
                " from a config",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
  "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "set_grad_none": true}}
}
""",
        reports=(
            Report(
                at="optimizer.params.set_grad_none",
                message='DeepSpeedCPUAdam, which DeepSpeed builds for "Adam" (line 4) while its states are offloaded,'
                ' takes no parameter "set_grad_none" from a config, unless the script passes its own optimizer',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
  "optimizer": {"type": "Adam", "params": {"lr": 1e-4}}
}
""",
    ),
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "SGD", "params": {"lr": 0.1, "betas": [0.9, 0.99]}}}',
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.params.betas",
                message='torch.optim.SGD takes no parameter "betas" from a config',
            ),
        ),
        fixed='{"train_batch_size": 8, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}',
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {
    "type": "Adam",
    "params": {"lr": 1e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "adam_w_mode": true}
  }
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": true, "foreach": false}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
)

# How other tools call what DeepSpeed and torch call by one name.
_OTHER_NAMES: Mapping[str, str] = {
    "learning_rate": "lr",
    "beta1": "betas",
    "beta2": "betas",
    "beta_1": "betas",
    "beta_2": "betas",
    "adam_beta1": "betas",
    "adam_beta2": "betas",
    "epsilon": "eps",
    "adam_epsilon": "eps",
    "wd": "weight_decay",
    "decay": "weight_decay",
}


def check(context: LintContext) -> Iterator[Finding]:
    built = optimizer_from_config(context)
    choice = resolve_optimizer(context.config) if built is not None else None
    if built is None or choice is None or choice.parameters is None:
        return
    optimizer = context.block("optimizer")
    if optimizer.get("params") is not None and not isinstance(optimizer["params"], Mapping):
        return
    params, subject = params_of(optimizer), class_behind_the_type(context, choice)
    subject += "," * ("," in subject)
    for key in params:
        # max_grad_norm has a rule of its own.
        if key not in choice.parameters and key != "max_grad_norm":
            yield Finding(
                at=("optimizer", "params", key),
                on_key=True,
                message=f"{subject} takes no parameter {shown(str(key))} from a config",
                help=_help(choice, str(key)),
                depends_on=built.depends_on,
                fix=_fix(choice, key, params),
            )
    for key in sorted(choice.required - set(params)):
        yield Finding(
            at=("optimizer", "params"),
            message=f"{choice.full_name} needs the parameter {shown(key)}",
            help="add it, or use another optimizer",
            depends_on=built.depends_on,
        )


def _meant(choice: OptimizerChoice, key: str) -> str | None:
    known = choice.parameters or frozenset()
    meant = _OTHER_NAMES.get(key.lower())
    return meant if meant in known else closest_word(key, known)


def _fix(choice: OptimizerChoice, key: str, params: Mapping[Any, Any]) -> Fix | None:
    meant, at = _meant(choice, str(key)), ("optimizer", "params", key)
    if meant is None:
        return removed(at, is_safe=False)
    if _OTHER_NAMES.get(str(key).lower()) != meant:
        return renamed(at, meant, beside=params)
    # One number is not yet the pair that "betas" wants.
    return renamed(at, meant, beside=params, is_synonym=True) if meant != "betas" else None


def _help(choice: OptimizerChoice, key: str) -> str:
    known, meant = choice.parameters or frozenset(), _meant(choice, key)
    if meant is not None:
        return f"did you mean {shown(meant)}?"
    if "torch_adam" in known and key in ("foreach", "fused", "maximize", "capturable", "differentiable"):
        return 'remove it, or set "torch_adam": true beside it: only torch\'s own Adam takes it'
    return "remove it"


RULE = Rule(
    code="DSA502",
    name="unknown-optimizer-parameter",
    summary="optimizer.params holds a key that the optimizer does not take, or lacks one that it needs",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
