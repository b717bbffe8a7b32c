"""Master weights in half precision are to be kept by an optimizer that is not ZeRO's.

`fp16_master_weights_and_grads` and its bf16 namesake are features of ZeRO's optimizers; `bf16_optimizer_states` adds to
the latter and needs it. DeepSpeed checks all three while it loads the config, since 0.17.1 even where fp16 or bf16
itself is switched off.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.document import Path
from ds_accum.config.schema import checks_value
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage
from ds_accum.lint.wording import dotted

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "fp16": {"enabled": true, "fp16_master_weights_and_grads": true}
}
""",
        reports=(
            Report(
                at="fp16.fp16_master_weights_and_grads",
                message="fp16.fp16_master_weights_and_grads needs ZeRO stage 1, 2 or 3 instead of"
                " ZeRO stage 0 (the default)",
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "bf16": {"enabled": true, "bf16_optimizer_states": true},
  "zero_optimization": {"stage": 2}
}
""",
        reports=(
            Report(
                at="bf16.bf16_optimizer_states",
                message="bf16.bf16_optimizer_states needs bf16_master_weights_and_grads, but that is off",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true},
  "zero_optimization": {"stage": 2}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    if config.zero_stage is None:
        return
    if support.keeps_fp16_master_weights(config):
        # Only ZeRO-2 had it before 0.18.3.
        newer = checks_value(context.version, "fp16", "fp16_master_weights_and_grads")
        if config.zero_stage == 0 or (not newer and config.zero_stage != 2):
            yield _needs_zero(context, ("fp16", "fp16_master_weights_and_grads"), "1, 2 or 3" if newer else "2")
    bf16 = context.block("bf16")
    master, states = bf16.get("bf16_master_weights_and_grads"), bf16.get("bf16_optimizer_states")
    if master and config.zero_stage == 0:
        yield _needs_zero(context, (*bf16.path, "bf16_master_weights_and_grads"), "1, 2 or 3")
    if states and config.zero_stage == 0:
        yield _needs_zero(context, (*bf16.path, "bf16_optimizer_states"), "1, 2 or 3")
    elif states and master is False:
        yield Finding(
            at=(*bf16.path, "bf16_optimizer_states"),
            message=f"{dotted(bf16.path)}.bf16_optimizer_states needs bf16_master_weights_and_grads, but that is off",
            help='add "bf16_master_weights_and_grads": true',
        )


def _needs_zero(context: LintContext, path: Path, stages: str) -> Finding:
    return Finding(
        at=path,
        message=f"{dotted(path)} needs ZeRO stage {stages} instead of {zero_stage(context)}",
        help="remove it, or change the stage",
    )


RULE = Rule(
    code="DSA303",
    name="master-weights-without-zero",
    summary="master weights in half precision without the ZeRO stage that keeps them",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
)
