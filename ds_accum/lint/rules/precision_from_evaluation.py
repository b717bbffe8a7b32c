"""A switch for evaluation puts the training into 16 bits.

`bf16_full_eval` and `fp16_full_eval` are about evaluation; outside DeepSpeed, training stays in fp32 with them. But
Trainer fills in `"enabled": "auto"` of a precision block with true if either the switch for training or the one for
evaluation is on, and the engine has one precision for both. `args.bf16` remains false, and so does what the log says.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.training_arguments import TrainingArguments
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule

_AUTO = (
    '{{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",'
    ' "bf16": {{"enabled": {}}}, "zero_optimization": {{"stage": 2}}}}'
)

BAD = (
    Example(
        config=_AUTO.format('"auto"'),
        launch=Launch(hf_arguments=TrainingArguments.of({"bf16_full_eval": True})),
        reports=(
            Report(
                at="bf16.enabled",
                message='bf16.enabled is "auto", which bf16_full_eval (--hf-args) switches on, so training is in bf16'
                " too, though bf16 is false (its default)",
            ),
        ),
        deepspeed=None,
        fixed='{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
        '"gradient_clipping": "auto", "bf16": {"enabled": false}, "zero_optimization": {"stage": 2}}',
    ),
)

GOOD = (
    Example(
        config=_AUTO.format('"auto"'),
        launch=Launch(hf_arguments=TrainingArguments.of({"bf16": True, "bf16_full_eval": True})),
        deepspeed=None,
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    arguments = context.launch.hf_arguments
    if arguments is None:
        return
    for block in ("bf16", "fp16"):
        evaluation = f"{block}_full_eval"
        if (block, "enabled") not in context.embedded.sources or not arguments.is_known(block, evaluation):
            continue
        if arguments[block] or not arguments[evaluation]:
            continue
        yield Finding(
            at=(block, "enabled"),
            message=f'{block}.enabled is "auto", which {evaluation} ({arguments.origin(evaluation)}) switches on, so'
            f" training is in {block} too, though {block} is false ({arguments.origin(block)})",
            help=f"write false and drop {evaluation}, or train in {block} and say so with {block}",
            fix=Fix(
                title=f"set {block}.enabled to false",
                changes=(SetValue((block, "enabled"), False),),
                is_safe=False,
            ),
        )


RULE = Rule(
    code="DSA812",
    name="precision-from-evaluation",
    summary="bf16_full_eval or fp16_full_eval decides the precision of the training",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    proof=Proof.OTHER_READER,
    bad=BAD,
    good=GOOD,
)
