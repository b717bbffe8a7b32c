"""The checkpoint to continue from lacks the optimizer states of some ranks.

With ZeRO each rank writes its own share of the optimizer states, and each loads it again. A job that was killed while
it saved, a copy that was cut short or a node whose local disk was not collected leaves a checkpoint that looks whole:
`latest` names it, and the weights may all be there. The rank without its file fails with a `FileNotFoundError` when all
the others are up.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.checkpoint import checkpoint_from_names
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.resuming import STAGE, loads_universal
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import number

_CONFIG = (
    '{"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},'
    ' "zero_optimization": {"stage": 2}}'
)
_OPTIMIZER = "zero_pp_rank_{}_mp_rank_00_optim_states.pt"

BAD = (
    Example(
        config=_CONFIG,
        launch=Launch(
            world_size=4,
            checkpoint=checkpoint_from_names(
                ["mp_rank_00_model_states.pt", *(_OPTIMIZER.format(rank) for rank in (0, 3))], tag="global_step5"
            ),
        ),
        reports=(
            Report(
                at="zero_optimization.stage",
                message="checkpoint/global_step5 has no optimizer states of the ranks 1 and 2, though of rank 3, and"
                " ZeRO needs those of all",
            ),
        ),
        deepspeed=None,
    ),
)

GOOD = (
    Example(
        config=_CONFIG,
        launch=Launch(
            world_size=2,
            checkpoint=checkpoint_from_names(
                ["mp_rank_00_model_states.pt", *(_OPTIMIZER.format(rank) for rank in (0, 1))], tag="global_step5"
            ),
        ),
        deepspeed=None,
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    checkpoint = context.launch.checkpoint
    if checkpoint is None or not checkpoint.missing_ranks or loads_universal(context):
        return
    # Each node keeps the files of its own ranks then.
    if context.block("checkpoint").get("use_node_local_storage"):
        return
    missing = [number(rank) for rank in checkpoint.missing_ranks]
    ranks = f"the ranks {', '.join(missing[:-1])} and {missing[-1]}" if missing[1:] else f"rank {missing[0]}"
    assert checkpoint.data_parallel_size is not None, "some rank's file is there"
    yield Finding(
        at=STAGE,
        message=f"{checkpoint.folder}/{checkpoint.tag} has no optimizer states of {ranks}, though of rank"
        f" {number(checkpoint.data_parallel_size - 1)}, and ZeRO needs those of all",
        help="continue from an older checkpoint, or collect the files that are missing",
    )


RULE = Rule(
    code="DSA850",
    name="incomplete-checkpoint",
    summary="the checkpoint to continue from lacks optimizer states",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
