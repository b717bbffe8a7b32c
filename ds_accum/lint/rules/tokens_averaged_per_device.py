"""Every rank averages over its own tokens.

Trainer divides the loss of a step by the tokens that count in it. With `average_tokens_across_devices`, the default,
these are the tokens of all ranks; without it each rank divides by its own, and the mean of the ranks' means is not the
mean over tokens: a rank with few tokens weighs as much as one with many.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.training_arguments import TrainingArguments
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.rule import Example, Report, Rule

_CONFIG = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",'
    ' "zero_optimization": {"stage": 2}}'
)

BAD = (
    Example(
        config=_CONFIG,
        launch=Launch(world_size=2, hf_arguments=TrainingArguments.of({"average_tokens_across_devices": False})),
        reports=(
            Report(
                at="",
                message="average_tokens_across_devices is false (--hf-args), so each of 2 ranks averages over its own"
                " tokens, and their mean is not the mean over tokens",
            ),
        ),
        deepspeed=None,
    ),
)

GOOD = (
    Example(
        config=_CONFIG,
        launch=Launch(world_size=1, hf_arguments=TrainingArguments.of({"average_tokens_across_devices": False})),
        deepspeed=None,
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    arguments, ranks = context.launch.hf_arguments, context.launch.world_size
    name = "average_tokens_across_devices"
    if arguments is None or ranks == 1 or not arguments.is_known(name) or arguments[name]:
        return
    each = "each rank" if ranks is None else f"each of {ranks} ranks"
    yield Finding(
        at=(),
        message=f"{name} is false ({arguments.origin(name)}), so {each} averages over its own tokens, and their mean is"
        " not the mean over tokens",
        help="leave it at true unless every rank has as many tokens",
    )


RULE = Rule(
    code="DSA816",
    name="tokens-averaged-per-device",
    summary="average_tokens_across_devices is off",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.INFO,
    check=check,
    proof=Proof.READ,
    bad=BAD,
    good=GOOD,
)
