"""Trainer is told which optimizer or schedule to use, and the config names another.

An `optimizer` block takes the place of `optim`, a `scheduler` block that of `lr_scheduler_type`: Trainer hands
DeepSpeed placeholders and never builds its own. It says nothing about it. With DeepSpeed's optimizer there is one
parameter group, so weight decay also falls on biases and norms, which Trainer would spare; with `WarmupLR` the learning
rate never decays.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.training_arguments import TrainingArguments
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

_CONFIG = (
    '{{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",'
    ' "optimizer": {{"type": "AdamW", "params": {{"lr": "auto"}}}}, "scheduler": {{"type": "{}", "params":'
    ' {{"warmup_max_lr": "auto", "warmup_num_steps": "auto"{}}}}}, "zero_optimization": {{"stage": 2}}}}'
)

BAD = (
    Example(
        config=_CONFIG.format("WarmupLR", ""),
        launch=Launch(hf_arguments=TrainingArguments.of({"optim": "sgd", "lr_scheduler_type": "cosine"})),
        reports=(
            Report(
                at="optimizer.type",
                message='the config names the optimizer "AdamW", so optim "sgd" (--hf-args) has no effect',
            ),
            Report(
                at="scheduler.type",
                message='the config names the scheduler "WarmupLR", so lr_scheduler_type "cosine" (--hf-args) has no'
                " effect",
            ),
        ),
        deepspeed=None,
        fixed='{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
        '"gradient_clipping": "auto", "zero_optimization": {"stage": 2}}',
    ),
)

GOOD = (
    Example(
        config=_CONFIG.format("WarmupDecayLR", ', "total_num_steps": "auto"'),
        launch=Launch(hf_arguments=TrainingArguments.of({"optim": "adamw_torch", "lr_scheduler_type": "linear"})),
        deepspeed=None,
    ),
)

# DeepSpeed's schedulers and what Trainer calls the same curve.
_SAME_CURVE = {
    "WarmupLR": ("constant_with_warmup", "constant"),
    "WarmupDecayLR": ("linear",),
    "WarmupCosineLR": ("cosine",),
}


def check(context: LintContext) -> Iterator[Finding]:
    arguments = context.launch.hf_arguments
    if arguments is None:
        return
    optimizer, scheduler = context.block("optimizer").get("type"), context.block("scheduler").get("type")
    if isinstance(optimizer, str) and arguments.asks_for("optim") and not _is_same(optimizer, arguments["optim"]):
        yield _ignored("optimizer", optimizer, "optim", arguments)
    if (
        isinstance(scheduler, str)
        and arguments.asks_for("lr_scheduler_type")
        and arguments["lr_scheduler_type"] not in _SAME_CURVE.get(scheduler, ())
    ):
        yield _ignored("scheduler", scheduler, "lr_scheduler_type", arguments)


def _ignored(block: str, kind: str, argument: str, arguments: TrainingArguments) -> Finding:
    return Finding(
        at=(block, "type"),
        message=f"the config names the {block} {shown(kind)}, so {argument} {shown(arguments[argument])}"
        f" ({arguments.origin(argument)}) has no effect",
        help=f"remove the {block} from the config, and Trainer builds its own; or drop the argument",
        fix=Fix(title=f"remove the {block}", changes=(RemoveKey((block,)),), is_safe=False),
    )


def _is_same(kind: str, optim: str) -> bool:
    """Whether an optimizer of DeepSpeed's computes what Trainer's name asks for."""
    word = kind.lower()
    if word in ("adam", "adamw"):
        return optim in ("adamw", "adamw_hf", "adamw_torch", "adamw_torch_fused", "adamw_apex_fused")
    return word == optim.lower()


RULE = Rule(
    code="DSA814",
    name="trainer-choice-ignored",
    summary="optim or lr_scheduler_type of Trainer has no effect",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    proof=Proof.OTHER_READER,
    bad=BAD,
    good=GOOD,
)
