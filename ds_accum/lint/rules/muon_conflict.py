"""Muon is combined with something that takes its matrices apart, or with a wrapper that does not know it.

Muon orthogonalizes a whole gradient matrix, so every rank needs all of it. ZeRO-3 reduces gradients so that each rank
gets its own slice only, by `reduce_scatter`, which is on by default, or in quantized all-to-alls
(`zero_quantized_gradients`); DeepSpeed refuses both. Before 0.18.9 Muon did not run on ZeRO-3 at all. The wrapper that
bf16 gets in a pipeline without ZeRO, or with fp32 accumulation at ZeRO-1, takes Muon only where no rank is model
parallel, and since 0.19.8 it says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.config.optimizers import MUON, resolve_optimizer
from ds_accum.config.schema import format_version
from ds_accum.lint.built_from_config import Condition, optimizer_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import setting, zero_stage

ZERO = "zero_optimization"

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "Muon", "params": {"lr": 0.02}},
  "zero_optimization": {"stage": 3}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="zero_optimization.reduce_scatter",
                message="Muon (line 3) can't run with reduce_scatter true (the default) at ZeRO stage 3 (line 4)",
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "Muon", "params": {"lr": 0.02}},
  "zero_optimization": {"stage": 3, "reduce_scatter": false, "zero_quantized_gradients": true}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="zero_optimization.zero_quantized_gradients",
                message="Muon (line 3) can't run with zero_quantized_gradients true (line 4) at ZeRO stage 3 (line 4)",
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "bf16": {"enabled": true},
  "optimizer": {"type": "Muon", "params": {"lr": 0.02}}
}
""",
        launch=Launch(world_size=2, pipeline_parallel_size=2, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.type",
                message="Muon (line 4) can't run in bf16 at ZeRO stage 0 (the default) with model parallel ranks, here"
                " 2",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "Muon", "params": {"lr": 0.02}},
  "zero_optimization": {"stage": 3, "reduce_scatter": false}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "Muon", "params": {"lr": 0.02}},
  "zero_optimization": {"stage": 2}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    built, config = optimizer_from_config(context), context.config
    if built is None:
        return
    choice = resolve_optimizer(config)
    if choice is None or choice.name != MUON:
        return
    muon = f"Muon ({context.line('optimizer', 'type')})"
    if _is_wrapped_for_bf16(context):
        yield Finding(
            at=("optimizer", "type"),
            message=f"{muon} can't run in bf16 at {zero_stage(context)} with model parallel ranks, here"
            f" {context.launch.model_parallel_size}",
            help="use AdamW, or ZeRO stage 1 without grad_accum_dtype",
            depends_on=built.depends_on,
        )
    if config.zero_stage != 3:
        return
    if context.version < (0, 18, 9):
        yield Finding(
            at=(ZERO, "stage"),
            message=f"{muon} can't run at {zero_stage(context)} in DeepSpeed {format_version(context.version)}",
            help="use stage 2, or DeepSpeed 0.18.9 and newer",
            depends_on=built.depends_on,
        )
        return
    for key in ("reduce_scatter", "zero_quantized_gradients"):
        if config.block(ZERO).get(key):
            yield _conflict(context, built, muon, key)


def _is_wrapped_for_bf16(context: LintContext) -> bool:
    """Whether `BF16_Optimizer` gets Muon with an mpu, which its constructor refuses."""
    config, launch = context.config, context.launch
    if launch.model_parallel_size == 1 or context.version < (0, 19, 8):
        return False
    if support.uses_bf16_optimizer(config):
        return True
    return (
        launch.pipeline_parallel_size > 1
        and config.zero_stage == 0
        and support.model_dtype(config) == "bf16"
        and support.accumulates_in(config) == "bf16"
    )


def _conflict(context: LintContext, built: Condition, muon: str, key: str) -> Finding:
    value = context.block(ZERO)[key]
    return Finding(
        at=(ZERO, key),
        message=f"{muon} can't run with {setting(context, value, ZERO, key)} at {zero_stage(context)}",
        help=f'set "{key}": false in {ZERO}',
        depends_on=built.depends_on,
    )


RULE = Rule(
    code="DSA506",
    name="muon-conflict",
    summary="Muon is combined with something that takes its matrices apart, or a wrapper that does not know it",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
