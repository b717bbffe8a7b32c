"""The training continues on another number of ranks than it was saved on.

With ZeRO the optimizer states are cut into as many pieces as there are data-parallel ranks, and DeepSpeed does not cut
them anew: it refuses to load them ("Automatic adjustment of ZeRO's optimizer state partitioning with a new world size
is not currently supported"). `elastic_checkpoint` changes nothing about that. What does is a universal checkpoint,
which `ds_to_universal.py` makes of the saved one. At stage 0 every rank has all states, and any number of ranks will
do.
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
from ds_accum.lint.wording import number

_CONFIG = (
    '{{"train_micro_batch_size_per_gpu": 1, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}},'
    ' "zero_optimization": {{"stage": 2}}{}}}'
)
_FILES = ["mp_rank_00_model_states.pt", *(f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in range(8))]

BAD = (
    Example(
        config=_CONFIG.format(""),
        launch=Launch(world_size=16, checkpoint=checkpoint_from_names(_FILES, tag="global_step5")),
        reports=(
            Report(
                at="zero_optimization.stage",
                message="checkpoint/global_step5 was saved by 8 data-parallel ranks and the launch has 16, but ZeRO"
                " stage 2 (line 1) continues on as many only",
            ),
        ),
        deepspeed=None,
    ),
)

GOOD = (
    Example(
        config=_CONFIG.format(""),
        launch=Launch(world_size=8, checkpoint=checkpoint_from_names(_FILES, tag="global_step5")),
        deepspeed=None,
    ),
    Example(
        config=_CONFIG.format(', "checkpoint": {"load_universal": true}'),
        launch=Launch(world_size=16, checkpoint=checkpoint_from_names(_FILES, tag="global_step5", has_universal=True)),
        deepspeed=None,
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    checkpoint, launch, stage = context.launch.checkpoint, context.launch, context.config.zero_stage
    if checkpoint is None or launch.world_size is None or not stage or loads_universal(context):
        return
    # Another stage is refused whatever the number of ranks.
    if checkpoint.data_parallel_size is None or stage not in checkpoint.stages or launch.context_parallel_size > 1:
        return
    # Sequence-parallel ranks share in the pieces.
    ranks = launch.world_size // (launch.tensor_parallel_size * launch.pipeline_parallel_size)
    saved = checkpoint.data_parallel_size
    if ranks == saved:
        return
    yield Finding(
        at=STAGE,
        message=f"{checkpoint.folder}/{checkpoint.tag} was saved by {number(saved)} data-parallel"
        f" {'rank' if saved == 1 else 'ranks'} and the launch has {number(ranks)}, but {zero_stage(context)} continues"
        " on as many only",
        help=f"launch {number(saved)}, or make a universal checkpoint with ds_to_universal.py and set"
        " checkpoint.load_universal to true",
    )


RULE = Rule(
    code="DSA851",
    name="resumed-at-other-world-size",
    summary="a ZeRO checkpoint is continued on another number of ranks",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
    references=("https://www.deepspeed.ai/tutorials/universal-checkpointing/",),
)
