"""The config says nothing of accumulation, and DeepSpeed is told 1.

Accelerate, and Trainer through it, adds `"gradient_accumulation_steps": 1` to a config file that lacks the key,
whatever `Accelerator(gradient_accumulation_steps=...)` or Trainer's argument says, and then follows the config. A loop
of Accelerate takes an optimizer step after every micro-batch; the warning about it is one that healthy runs log as
well. Trainer divides the loss by its own number, so that its gradients are right, but the engine's batch size, its
count of samples and its throughput are too small by that factor.

"auto" hands the number of the script on.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.resolve import ACCUMULATION
from ds_accum.config.training_arguments import TrainingArguments
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

_CONFIG = (
    '{{"train_micro_batch_size_per_gpu": "auto",{} "gradient_clipping": "auto", "zero_optimization": {{"stage": 2}}}}'
)

BAD = (
    Example(
        config=_CONFIG.format(""),
        launch=Launch(hf_arguments=TrainingArguments.of({"gradient_accumulation_steps": 4})),
        reports=(
            Report(
                at="gradient_accumulation_steps",
                message="gradient_accumulation_steps is not set, so DeepSpeed is told 1, and not"
                " gradient_accumulation_steps 4 (--hf-args)",
            ),
        ),
        deepspeed=None,
        fixed='{"train_micro_batch_size_per_gpu": "auto", "gradient_clipping": "auto", '
        '"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": "auto"}',
    ),
    Example(
        config=_CONFIG.format(""),
        launch=Launch(framework="accelerate"),
        reports=(
            Report(
                at="gradient_accumulation_steps",
                message="gradient_accumulation_steps is not set, so Accelerate tells DeepSpeed 1, whatever the script"
                " accumulates",
            ),
        ),
        deepspeed=None,
        fixed='{"train_micro_batch_size_per_gpu": "auto", "gradient_clipping": "auto", '
        '"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": "auto"}',
    ),
)

GOOD = (
    Example(
        config=_CONFIG.format(' "gradient_accumulation_steps": "auto",'),
        launch=Launch(hf_arguments=TrainingArguments.of({"gradient_accumulation_steps": 4})),
        deepspeed=None,
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    arguments = context.launch.hf_arguments
    if context.launch.framework not in ("huggingface", "accelerate") or ACCUMULATION in context.embedded.written:
        return
    if arguments is None and context.launch.framework == "accelerate":
        message = f"{ACCUMULATION} is not set, so Accelerate tells DeepSpeed 1, whatever the script accumulates"
    elif arguments is not None and arguments[ACCUMULATION] > 1 and context.batch.fault is None:
        # Where the batch does not add up with a 1, that is said already.
        message = (
            f"{ACCUMULATION} is not set, so DeepSpeed is told 1, and not {ACCUMULATION}"
            f" {shown(arguments[ACCUMULATION])} ({arguments.origin(ACCUMULATION)})"
        )
    else:
        return
    yield Finding(
        at=(ACCUMULATION,),
        severity=Severity.INFO if arguments is None else None,
        message=message,
        help=f'add "{ACCUMULATION}": "auto"',
        fix=Fix(title=f'add {ACCUMULATION} "auto"', changes=(SetValue((ACCUMULATION,), "auto"),), is_safe=False),
    )


RULE = Rule(
    code="DSA815",
    name="accumulation-not-from-trainer",
    summary="the accumulation of the script does not reach DeepSpeed",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    proof=Proof.OTHER_READER,
    bad=BAD,
    good=GOOD,
)
