"""ZeRO is to shard an optimizer, and nobody names one.

ZeRO-1 and ZeRO-2 are wrappers around an optimizer: the one that the config names, or the one that the script hands to
`deepspeed.initialize`. With neither the engine does not start. Nothing is said unless the launch says that the script
passes none (`--client-optimizer no`), because many scripts do.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage

BAD = (
    Example(
        config='{"train_batch_size": 8, "zero_optimization": {"stage": 2}}',
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="zero_optimization.stage",
                message="ZeRO stage 2 (line 1) needs an optimizer, but the config names none and the script passes"
                " none",
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"name": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 1}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer",
                message="the optimizer block has no type, so DeepSpeed ignores it, and ZeRO stage 1 (line 4) needs an"
                " optimizer",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 2}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
    Example(
        config='{"train_batch_size": 8, "zero_optimization": {"stage": 2}}',
        launch=Launch(world_size=1, client_optimizer=True),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    optimizer = config.block("optimizer")
    if config.zero_stage not in (1, 2) or support.has_optimizer(config, context.launch) is not False:
        return
    if optimizer.get("type") is not None or not optimizer.is_mapping:
        return  # the rules about optimizers say what is wrong with it
    if optimizer.present:
        yield Finding(
            at=("optimizer",),
            on_key=True,
            message=f"the optimizer block has no type, so DeepSpeed ignores it, and {zero_stage(context)} needs an"
            " optimizer",
            help='add "type" to the block, for example "AdamW"',
        )
        return
    yield Finding(
        at=("zero_optimization", "stage"),
        message=f"{zero_stage(context)} needs an optimizer, but the config names none and the script passes none",
        help='add an "optimizer" block, or pass an optimizer to deepspeed.initialize',
    )


RULE = Rule(
    code="DSA211",
    name="zero-without-optimizer",
    summary="there is no optimizer for ZeRO-1 or ZeRO-2 to shard",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
