"""A parameter of the optimizer has a value that its class can't compute with.

torch's optimizers check their numbers when they are built, so does the C++ part of DeepSpeed's CPU optimizers; a
learning rate in quotes or a left-over "auto" ends there, on every rank. FusedAdam and Muon take what they get and
fail at the first step instead, deep inside the kernel, with the types of all its arguments but no key.

One trap lies in the reader: DeepSpeed reads `0.0` in a file as the integer 0, and torch's Adam wants both betas as
floats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ds_accum.config import support
from ds_accum.config.document import Path
from ds_accum.config.launch import Launch
from ds_accum.config.optimizer_values import ValueKind, kinds_of
from ds_accum.config.optimizers import MUON, OptimizerChoice, resolve_optimizer
from ds_accum.lint.built_from_config import Condition, class_behind_the_type, optimizer_from_config, params_of
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.mends import without_quotes
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted, what

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
  "optimizer": {"type": "AdamW", "params": {"lr": "1e-3"}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.params.lr",
                message='optimizer.params.lr must be a number for DeepSpeedCPUAdam, which DeepSpeed builds for "AdamW"'
                ' (line 4) while its states are offloaded, but is the string "1e-3"',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}
}
""",
    ),
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": -0.9}}}',
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.params.momentum",
                message="optimizer.params.momentum must be a number that is at least 0 for torch.optim.SGD, but is the"
                " number -0.9",
            ),
        ),
    ),
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "SGD", "params": {"lr": 0.1, "nesterov": true}}}',
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.params.nesterov",
                message="optimizer.params.nesterov needs a momentum greater than 0 and no dampening in torch.optim.SGD",
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": true, "betas": [0.0, 0.99]}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.params.betas",
                message="optimizer.params.betas must be a list of two numbers with a decimal point, each at least 0 and"
                ' less than 1 for torch.optim.AdamW, which DeepSpeed builds for "AdamW" (line 3) with torch_adam, but'
                " is the list [0, 0.99], unless torch is older than 2.6",
            ),
        ),
    ),
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"eps": "1e-8"}}}',
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.params.eps",
                message="optimizer.params.eps must be a number for FusedAdam, which DeepSpeed builds for"
                ' "AdamW" (line 1), but is the string "1e-8"',
            ),
        ),
        fixed='{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"eps": 1e-8}}}',
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {
    "type": "AdamW",
    "params": {"lr": 1e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "torch_adam": true}
  }
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9, "nesterov": true}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
)

UNLESS_TORCH_IS_OLD = "unless torch is older than 2.6"
UNLESS_A_SCHEDULER_SETS_IT = "unless a scheduler sets it before the first step"

# A scheduler overwrites these when it is built, which is before the first step.
_SET_BY_SCHEDULERS = ("lr", "betas", "muon_lr")


def check(context: LintContext) -> Iterator[Finding]:
    built = optimizer_from_config(context)
    choice = resolve_optimizer(context.config) if built is not None else None
    if built is None or choice is None:
        return
    params = params_of(context.block("optimizer"))
    yield from _refused_by_the_constructor(context, built, choice, params)
    yield from _refused_by_the_first_step(context, built, choice, params)


def _refused_by_the_constructor(
    context: LintContext, built: Condition, choice: OptimizerChoice, params: Mapping[Any, Any]
) -> Iterator[Finding]:
    for key, kind in kinds_of(choice.name, version=context.version).items():
        if key not in params or key in choice.kept_back or kind.accepts(params[key]):
            continue
        depends_on = built.depends_on
        if kind.accepts(params[key], old_torch=True):
            depends_on = built.and_only(UNLESS_TORCH_IS_OLD)
        yield _finding(context, choice, key, kind, params[key], depends_on)
    if choice.full_name == "torch.optim.SGD" and params.get("nesterov"):
        momentum, dampening = params.get("momentum", 0), params.get("dampening", 0)
        if isinstance(momentum, int | float) and momentum >= 0 and (momentum == 0 or dampening != 0):
            path: Path = ("optimizer", "params", "nesterov")
            yield Finding(
                at=path,
                message=f"{dotted(path)} needs a momentum greater than 0 and no dampening in torch.optim.SGD",
                help='set "momentum" beside it, for example to 0.9, or remove it',
                depends_on=built.depends_on,
            )


def _refused_by_the_first_step(
    context: LintContext, built: Condition, choice: OptimizerChoice, params: Mapping[Any, Any]
) -> Iterator[Finding]:
    earlier = kinds_of(choice.name, version=context.version)
    for key, kind in kinds_of(choice.name, version=context.version, moment="first step").items():
        if key not in params or kind.accepts(params[key]) or (key in earlier and not earlier[key].accepts(params[key])):
            continue
        if key == "lr" and choice.name == MUON and "muon_lr" in params:
            continue  # overridden for the matrices, for which alone this is certain
        when, depends_on = _steps_when_built(context), built.depends_on
        if when is When.FIRST_STEP and key in _SET_BY_SCHEDULERS:
            # WarmupCosineLR alone computes with the optimizer's own, and fails where the kernel would have.
            if (
                context.block("scheduler").get("type") not in (None, "WarmupCosineLR")
                or context.launch.client_scheduler
            ):
                continue
            if context.launch.client_scheduler is None:
                depends_on = built.and_only(UNLESS_A_SCHEDULER_SETS_IT)
        yield _finding(context, choice, key, kind, params[key], depends_on, when=when)


def _steps_when_built(context: LintContext) -> When:
    """Half precision without ZeRO makes its optimizer states with one step on zeros, while the engine starts."""
    config = context.config
    wraps = config.zero_stage == 0 and support.model_dtype(config) != "fp32"
    return When.START if wraps and context.launch.pipeline_parallel_size == 1 else When.FIRST_STEP


def _finding(
    context: LintContext,
    choice: OptimizerChoice,
    key: str,
    kind: ValueKind,
    value: Any,
    depends_on: str | None,
    *,
    when: When = When.START,
) -> Finding:
    path: Path = ("optimizer", "params", key)
    behind = class_behind_the_type(context, choice)
    return Finding(
        at=path,
        message=f"{dotted(path)} must be {kind.wanted} for {behind}, but is {what(value)}",
        help=_help(kind, value),
        depends_on=depends_on,
        when=when,
        fix=without_quotes(path, value, accepts=lambda number: _is_accepted(context, choice, key, number)),
    )


def _is_accepted(context: LintContext, choice: OptimizerChoice, key: str, value: Any) -> bool:
    """Whether a value does when the optimizer is built, and at its first step."""
    kinds = (
        kinds_of(choice.name, version=context.version, moment=moment).get(key) for moment in ("start", "first step")
    )
    return all(kind.accepts(value) for kind in kinds if kind is not None)


def _help(kind: ValueKind, value: Any) -> str:
    if value == "auto":
        return 'write a value, or leave the key out: only Hugging Face\'s Trainer and Accelerate fill in "auto"'
    if isinstance(value, str) and kind.type in ("number", "pair"):
        return "write it without quotes"
    if kind.type == "off":
        return 'remove it; "torch_adam": true beside it has DeepSpeed build torch\'s own Adam, which knows AMSGrad'
    if kind.type == "pair" and kind.accepts(value, old_torch=True):
        return (
            "DeepSpeed reads 0.0 in a file as the integer 0: write a tiny number such as 1e-9, or leave torch_adam out"
        )
    return "change the value, or leave the key out"


RULE = Rule(
    code="DSA503",
    name="unusable-optimizer-parameter",
    summary="a parameter of the optimizer has a value that its class can't use",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
