"""The config asks for a universal checkpoint, and there is none.

`checkpoint.load_universal` makes DeepSpeed look for `latest_universal`, which `ds_to_universal.py` writes beside the
converted checkpoint, and refuse the start where that is missing. It is easily left on after the one start that changed
the number of ranks: what is saved from then on are checkpoints of the usual kind.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.checkpoint import checkpoint_from_names
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.resuming import UNIVERSAL, loads_universal
from ds_accum.lint.rule import Example, Report, Rule

_CONFIG = (
    '{"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},'
    ' "zero_optimization": {"stage": 1}, "checkpoint": {"load_universal": true}}'
)
_FILES = ["mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"]

BAD = (
    Example(
        config=_CONFIG,
        launch=Launch(world_size=1, checkpoint=checkpoint_from_names(_FILES, tag="global_step5")),
        reports=(
            Report(
                at="checkpoint.load_universal",
                message="load_universal is on, but checkpoint has no latest_universal",
            ),
        ),
        deepspeed=None,
    ),
)

GOOD = (
    Example(
        config=_CONFIG,
        launch=Launch(world_size=1, checkpoint=checkpoint_from_names(_FILES, has_universal=True)),
        deepspeed=None,
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    checkpoint = context.launch.checkpoint
    if checkpoint is not None and loads_universal(context) and not checkpoint.has_universal:
        yield Finding(
            at=UNIVERSAL,
            message=f"load_universal is on, but {checkpoint.folder} has no latest_universal",
            help="make it with ds_to_universal.py, or switch load_universal off",
        )


RULE = Rule(
    code="DSA854",
    name="missing-universal-checkpoint",
    summary="load_universal is on, and the checkpoint to continue from is no universal one",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
