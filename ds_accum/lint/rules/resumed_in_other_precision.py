"""The training continues in bf16 from a checkpoint that was not, or the other way round.

With bf16 on, ZeRO's files of optimizer states are called `bf16_zero_pp_rank_...`, else `zero_pp_rank_...`. DeepSpeed
looks for the name of the precision that it runs in and for no other, although it has a message about loading the other
kind: a `FileNotFoundError` ends the start.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.checkpoint import checkpoint_from_names
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.resuming import loads_universal
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import setting

_CONFIG = (
    '{{"train_micro_batch_size_per_gpu": 1, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}},'
    ' "bf16": {{"enabled": {}}}, "zero_optimization": {{"stage": 2}}}}'
)
_IN_FP32 = checkpoint_from_names(
    ["mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"], tag="global_step5"
)
_IN_BF16 = checkpoint_from_names(
    ["mp_rank_00_model_states.pt", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"], tag="global_step5"
)

BAD = (
    Example(
        config=_CONFIG.format("true"),
        launch=Launch(world_size=1, checkpoint=_IN_FP32),
        reports=(
            Report(
                at="bf16.enabled",
                message="checkpoint/global_step5 was not saved in bf16, and DeepSpeed does not continue from it with"
                " bf16.enabled true (line 1)",
            ),
        ),
        deepspeed=None,
    ),
    Example(
        config=_CONFIG.format("false"),
        launch=Launch(world_size=1, checkpoint=_IN_BF16),
        reports=(
            Report(
                at="bf16.enabled",
                message="checkpoint/global_step5 was saved in bf16, and DeepSpeed does not continue from it with"
                " bf16.enabled false (line 1)",
            ),
        ),
        deepspeed=None,
    ),
)

GOOD = (Example(config=_CONFIG.format("true"), launch=Launch(world_size=1, checkpoint=_IN_BF16), deepspeed=None),)


def check(context: LintContext) -> Iterator[Finding]:
    checkpoint, stage = context.launch.checkpoint, context.config.zero_stage
    if checkpoint is None or checkpoint.is_bf16 is None or stage not in checkpoint.stages or loads_universal(context):
        return
    block = context.block("bf16")
    enabled, at = block.get("enabled"), (str(block.path[0]), "enabled")
    if enabled is None or enabled is checkpoint.is_bf16 or at in context.embedded.filled_in:
        return
    yield Finding(
        at=at,
        message=f"{checkpoint.folder}/{checkpoint.tag} was {'' if checkpoint.is_bf16 else 'not '}saved in bf16, and"
        f" DeepSpeed does not continue from it with {block.path[0]}.{setting(context, enabled, *at)}",
        help=f"switch bf16 {'on' if checkpoint.is_bf16 else 'off'}, or load the weights alone",
    )


RULE = Rule(
    code="DSA853",
    name="resumed-in-other-precision",
    summary="a checkpoint is continued with bf16 switched the other way",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
