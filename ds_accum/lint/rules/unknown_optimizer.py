"""The config names an optimizer that DeepSpeed does not have.

DeepSpeed knows a handful by name, in any spelling of upper and lower case, and looks all others up in `torch.optim`,
where the case counts: "sgd" is not found, "SGD" is. Names of other libraries ("adamw_torch", "paged_adamw_8bit") and
of DeepSpeed's own classes ("FusedAdam") are not known. The 1-bit optimizers were dropped in 0.19.7.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.optimizers import (
    named_optimizers,
    optimizer_removed_in,
    torch_optimizers,
    uncallable_optimizers,
)
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import UNLESS_THE_SCRIPT_PASSES_ONE
from ds_accum.lint.wording import did_you_mean, shown

BAD = (
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-4}}}',
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(Report(at="optimizer.type", message='the optimizer "OneBitAdam" was removed in DeepSpeed 0.19.7'),),
    ),
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "sgd", "params": {"lr": 0.1}}}',
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(Report(at="optimizer.type", message='neither DeepSpeed nor torch.optim has an optimizer "sgd"'),),
    ),
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "adamw_torch", "params": {"lr": 1e-4}}}',
        reports=(
            Report(
                at="optimizer.type",
                message='neither DeepSpeed nor torch.optim has an optimizer "adamw_torch", unless the script passes its'
                " own optimizer",
            ),
        ),
        deepspeed=None,
    ),
)

GOOD = (
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}',
        launch=Launch(world_size=1, client_optimizer=False),
    ),
    # Unused: the script's own optimizer decides.
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "sgd", "params": {"lr": 0.1}}}',
        launch=Launch(world_size=1, client_optimizer=True),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    name = context.block("optimizer").get("type")
    if not isinstance(name, str) or context.launch.client_optimizer:
        return
    if name.lower() in named_optimizers(context.version) or name in torch_optimizers():
        return
    removed_in = optimizer_removed_in(name, context.version)
    if removed_in is not None:
        message = f"the optimizer {shown(name)} was removed in DeepSpeed {removed_in}"
        help_ = "use AdamW or Lamb, or an older DeepSpeed"
    elif name in uncallable_optimizers():
        message = f"{shown(name)} is a part of torch.optim, but no optimizer"
        help_ = "name an optimizer, such as AdamW"
    else:
        message = f"neither DeepSpeed nor torch.optim has an optimizer {shown(name)}"
        help_ = _help(name)
    yield Finding(
        at=("optimizer", "type"),
        message=message,
        help=help_,
        depends_on=None if context.builds_optimizer_from_config else UNLESS_THE_SCRIPT_PASSES_ONE,
    )


def _help(name: str) -> str:
    same = next((known for known in torch_optimizers() if known.lower() == name.lower()), None)
    if same is not None:
        return f'write "{same}": torch\'s names are spelt with their capitals'
    for known in ("adamw", "adam", "lion", "lamb", "adagrad"):
        if known in name.lower().replace("_", ""):
            return f'did you mean "{known.capitalize().replace("Adamw", "AdamW")}"?'
    meant = did_you_mean(name, [known.lower() for known in torch_optimizers()])
    spelt = next((known for known in torch_optimizers() if known.lower() == meant), None)
    return f'did you mean "{spelt}"?' if spelt else "name an optimizer of DeepSpeed or torch.optim, such as AdamW"


RULE = Rule(
    code="DSA501",
    name="unknown-optimizer",
    summary="the config names an optimizer that DeepSpeed does not have",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
