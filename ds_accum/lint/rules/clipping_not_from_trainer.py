"""Trainer is told to clip gradients, or not to, and DeepSpeed does something else.

Under DeepSpeed, Trainer and Accelerate leave clipping to the engine, which looks at `gradient_clipping` alone. Trainer
fills that in from `max_grad_norm` where it says "auto"; a key that is missing is not filled in, and DeepSpeed takes its
own default: 1.0 since 0.19.3, no clipping before. Nothing is logged, and the gradient norm that Trainer shows is the
one before clipping, so the log looks right as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.training_arguments import TrainingArguments
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config='{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",'
        ' "zero_optimization": {"stage": 1}}',
        launch=Launch(deepspeed_version=(0, 19, 8), hf_arguments=TrainingArguments.of({"max_grad_norm": 0.5})),
        reports=(
            Report(
                at="gradient_clipping",
                message="gradient_clipping is not set, so DeepSpeed clips at 1.0 (its default), and max_grad_norm 0.5"
                " (--hf-args) has no effect",
            ),
        ),
        deepspeed=None,
        fixed='{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
        '"zero_optimization": {"stage": 1}, "gradient_clipping": "auto"}',
    ),
    Example(
        config='{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",'
        ' "zero_optimization": {"stage": 1}}',
        launch=Launch(deepspeed_version=(0, 18, 3), hf_arguments=TrainingArguments.of({"bf16": False})),
        reports=(
            Report(
                at="gradient_clipping",
                message="gradient_clipping is not set, so DeepSpeed does not clip (its default), and max_grad_norm 1.0"
                " (its default) has no effect",
            ),
        ),
        deepspeed=None,
        fixed='{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
        '"zero_optimization": {"stage": 1}, "gradient_clipping": "auto"}',
    ),
)

GOOD = (
    Example(
        config='{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",'
        ' "gradient_clipping": "auto", "zero_optimization": {"stage": 1}}',
        launch=Launch(hf_arguments=TrainingArguments.of({"max_grad_norm": 0.5})),
        deepspeed=None,
    ),
)

_KEY = "gradient_clipping"


def check(context: LintContext) -> Iterator[Finding]:
    arguments = context.launch.hf_arguments
    if arguments is None or _KEY in context.values or (_KEY,) in context.embedded.filled_in:
        return
    wanted, clips_at = arguments["max_grad_norm"], context.config.top[_KEY]
    if not arguments.is_known("max_grad_norm") or max(wanted, 0) == max(clips_at, 0):
        return
    does = f"clips at {shown(clips_at)}" if clips_at > 0 else "does not clip"
    yield Finding(
        at=(_KEY,),
        message=f"{_KEY} is not set, so DeepSpeed {does} (its default), and max_grad_norm {shown(wanted)}"
        f" ({arguments.origin('max_grad_norm')}) has no effect",
        help=f'add "{_KEY}": "auto", and Trainer fills in {shown(wanted)}',
        fix=Fix(title=f'add {_KEY} "auto"', changes=(SetValue((_KEY,), "auto"),), is_safe=False),
    )


RULE = Rule(
    code="DSA811",
    name="clipping-not-from-trainer",
    summary="max_grad_norm of Trainer has no effect",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    proof=Proof.OTHER_READER,
    bad=BAD,
    good=GOOD,
)
