"""The training continues at a ZeRO stage that can't read what the old one wrote.

Stages 1 and 2 write the same files and read each other's. Stage 3 cuts the weights as well and names their files
another way; without ZeRO there are no files of pieces at all. A change between these three kinds ends in an
`AssertionError` without a word, a `FileNotFoundError` or `'NoneType' object has no attribute 'copy'`, whichever is met
first.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.checkpoint import checkpoint_from_names
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.resuming import STAGE, loads_universal
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage

_CONFIG = (
    '{{"train_micro_batch_size_per_gpu": 1, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}},'
    ' "zero_optimization": {{"stage": {}}}}}'
)
_OF_STAGE_2 = checkpoint_from_names(
    ["mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"], tag="global_step5"
)

BAD = (
    Example(
        config=_CONFIG.format(3),
        launch=Launch(world_size=1, checkpoint=_OF_STAGE_2),
        reports=(
            Report(
                at="zero_optimization.stage",
                message="checkpoint/global_step5 was saved at ZeRO stage 1 or 2, which ZeRO stage 3 (line 1) can't"
                " continue from",
            ),
        ),
        deepspeed=None,
    ),
    Example(
        config=_CONFIG.format(2),
        launch=Launch(checkpoint=checkpoint_from_names(["mp_rank_00_model_states.pt"], tag="global_step5")),
        reports=(
            Report(
                at="zero_optimization.stage",
                message="checkpoint/global_step5 was saved at ZeRO stage 0, which ZeRO stage 2 (line 1) can't continue"
                " from",
            ),
        ),
        deepspeed=None,
    ),
)

GOOD = (Example(config=_CONFIG.format(1), launch=Launch(world_size=1, checkpoint=_OF_STAGE_2), deepspeed=None),)


def check(context: LintContext) -> Iterator[Finding]:
    checkpoint, stage = context.launch.checkpoint, context.config.zero_stage
    if checkpoint is None or stage is None or stage in checkpoint.stages or loads_universal(context):
        return
    saved = " or ".join(map(str, checkpoint.stages))
    yield Finding(
        at=STAGE,
        message=f"{checkpoint.folder}/{checkpoint.tag} was saved at ZeRO stage {saved}, which {zero_stage(context)}"
        " can't continue from",
        help=f"set the stage to {saved}, or load the weights alone and start the optimizer anew",
    )


RULE = Rule(
    code="DSA852",
    name="resumed-at-other-stage",
    summary="a checkpoint is continued at a ZeRO stage that can't read it",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
