"""`optimizer.params` holds a key that the optimizer's class does not take, or lacks one that it needs.

DeepSpeed hands the parameters on to the class that it picks, and that class depends on more than the name: Adam and
AdamW are FusedAdam, DeepSpeedCPUAdam while their states are offloaded, torch's own with `torch_adam`. Each takes
other keys, and an unknown one ("learning_rate", "freeze_step") is a TypeError about an unexpected keyword argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ds_accum.config.launch import Launch
from ds_accum.config.optimizers import resolve_optimizer
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import UNLESS_THE_SCRIPT_PASSES_ONE
from ds_accum.lint.wording import did_you_mean

BAD = (
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"learning_rate": 1e-4}}}',
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.params.learning_rate",
                message='FusedAdam, which DeepSpeed builds here, takes no parameter "learning_rate"',
            ),
        ),
    ),
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "SGD", "params": {"lr": 0.1, "beta": 0.9}}}',
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.params.beta",
                message='torch.optim.SGD, which DeepSpeed builds here, takes no parameter "beta"',
            ),
        ),
    ),
)

GOOD = (
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": true}}}',
        launch=Launch(world_size=1, client_optimizer=False),
    ),
)

_OTHER_NAMES = {"learning_rate": "lr", "beta": "betas", "epsilon": "eps", "wd": "weight_decay"}


def check(context: LintContext) -> Iterator[Finding]:
    params = context.block("optimizer").get("params")
    if context.launch.client_optimizer or not isinstance(params, Mapping):
        return
    choice = resolve_optimizer(context.config)
    if choice is None or choice.parameters is None:
        return
    depends_on = None if context.builds_optimizer_from_config else UNLESS_THE_SCRIPT_PASSES_ONE
    for key in params:
        # DSA504 speaks about max_grad_norm.
        if key in choice.parameters or key == "max_grad_norm":
            continue
        other = _OTHER_NAMES.get(key)
        meant = other if other in choice.parameters else did_you_mean(key, choice.parameters)
        yield Finding(
            at=("optimizer", "params", key),
            on_key=True,
            message=f'{choice.full_name}, which DeepSpeed builds here, takes no parameter "{key}"',
            help=f'did you mean "{meant}"?' if meant else "remove it",
            depends_on=depends_on,
        )


RULE = Rule(
    code="DSA502",
    name="unknown-optimizer-parameter",
    summary="optimizer.params holds a key that the optimizer's class does not take",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
