"""The config names an optimizer without the learning rate, and DeepSpeed's own default is trained with.

With an `optimizer` block, Trainer and Accelerate build none: DeepSpeed does, from `params`. What says "auto" there is
filled in from the arguments; what is missing is not, and the class takes its own default, 0.001 for Adam, twenty times
Trainer's. Trainer's own schedule then multiplies that number, and nothing says so.

A scheduler of the config that sets the learning rate itself, from `warmup_max_lr` for one, makes up for a missing `lr`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.training_arguments import TrainingArguments
from ds_accum.lint.built_from_config import params_of
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

_CONFIG = (
    '{{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",'
    ' "optimizer": {{"type": "AdamW", "params": {{{}}}}}, "zero_optimization": {{"stage": 2}}}}'
)

BAD = (
    Example(
        config=_CONFIG.format('"betas": "auto"'),
        launch=Launch(framework="huggingface"),
        reports=(
            Report(
                at="optimizer.params",
                message='optimizer.params has no lr, so "AdamW" trains with its own default, whatever learning_rate'
                " says",
            ),
        ),
        deepspeed=None,
        fixed='{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
        '"gradient_clipping": "auto", "optimizer": {"type": "AdamW", "params": {"betas": "auto", '
        '"lr": "auto"}}, "zero_optimization": {"stage": 2}}',
    ),
    Example(
        config=_CONFIG.format('"lr": "auto"'),
        launch=Launch(hf_arguments=TrainingArguments.of({"weight_decay": 0.1, "adam_beta2": 0.95})),
        reports=(
            Report(
                at="optimizer.params",
                message="optimizer.params has no betas, so adam_beta2 0.95 (--hf-args) has no effect",
            ),
            Report(
                at="optimizer.params",
                message="optimizer.params has no weight_decay, so weight_decay 0.1 (--hf-args) has no effect",
            ),
        ),
        deepspeed=None,
        fixed='{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
        '"gradient_clipping": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto", '
        '"betas": "auto", "weight_decay": "auto"}}, "zero_optimization": {"stage": 2}}',
    ),
)

GOOD = (
    Example(
        config=_CONFIG.format('"lr": "auto", "weight_decay": "auto"'),
        launch=Launch(hf_arguments=TrainingArguments.of({"learning_rate": 1e-4, "weight_decay": 0.1})),
        deepspeed=None,
    ),
)

_ARGUMENTS = {
    "lr": ("learning_rate",),
    "betas": ("adam_beta1", "adam_beta2"),
    "eps": ("adam_epsilon",),
    "weight_decay": ("weight_decay",),
}
# What the cosine schedule multiplies is the optimizer's own learning rate.
_SCALES_THE_LEARNING_RATE = "WarmupCosineLR"


def check(context: LintContext) -> Iterator[Finding]:
    optimizer = context.block("optimizer")
    kind = optimizer.get("type")
    if context.launch.framework not in ("huggingface", "accelerate") or not isinstance(kind, str):
        return
    params = params_of(optimizer)
    at = ("optimizer", "params") if optimizer.written("params") else ("optimizer",)
    for key, names in _ARGUMENTS.items():
        path = ("optimizer", "params", key)
        if key in params or path in context.embedded.filled_in:
            continue
        effect = _effect(context, key, names, kind)
        if effect is not None:
            yield Finding(
                at=at,
                message=f"optimizer.params has no {key}, so {effect}",
                help=f'add "{key}": "auto" to it, or remove the optimizer, and Trainer builds its own',
                fix=Fix(title=f'add {key} "auto"', changes=(SetValue(path, "auto"),), is_safe=False),
            )


def _effect(context: LintContext, key: str, names: tuple[str, ...], kind: str) -> str | None:
    """What comes of a missing parameter; None if nothing, as far as it is known."""
    arguments = context.launch.hf_arguments
    scheduler = context.block("scheduler").get("type")
    if key == "lr":
        if scheduler not in (None, _SCALES_THE_LEARNING_RATE):
            return None
        if arguments is None or "learning_rate" not in arguments.given:
            return f"{shown(kind)} trains with its own default, whatever learning_rate says"
    asked = [name for name in names if arguments is not None and (arguments.asks_for(name) or key == "lr")]
    if arguments is None or not asked or (key in ("betas", "eps") and kind.lower() not in ("adam", "adamw")):
        return None
    said = " and ".join(f"{name} {shown(arguments[name])} ({arguments.origin(name)})" for name in asked)
    return f"{said} {'has' if len(asked) == 1 else 'have'} no effect"


RULE = Rule(
    code="DSA813",
    name="optimizer-parameter-not-from-trainer",
    summary="the optimizer of the config lacks a parameter that Trainer has an argument for",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    proof=Proof.OTHER_READER,
    bad=BAD,
    good=GOOD,
)
