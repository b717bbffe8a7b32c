"""ZeRO is to shard an optimizer that DeepSpeed has not tested it with.

ZeRO flattens the parameters into one long vector and gives each rank a slice of it. That is right for an optimizer
which treats every number alike, and wrong for one that looks at whole tensors: LAMB's trust ratio, Adafactor's rows
and columns. DeepSpeed lists the optimizers that it knows to be safe, Adam, AdamW, Adagrad, Lion and Muon, and refuses
all others until `zero_allow_untested_optimizer` says that this is meant.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.optimizers import resolve_optimizer
from ds_accum.lint.built_from_config import optimizer_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.mends import replaced
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import origin, zero_stage
from ds_accum.lint.wording import shown

SWITCH = "zero_allow_untested_optimizer"

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 2},
  "optimizer": {"type": "SGD", "params": {"lr": 0.1}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.type",
                message="ZeRO stage 2 (line 3) refuses torch.optim.SGD: DeepSpeed has not tested the two together, and"
                " zero_allow_untested_optimizer is false (the default)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 2},
  "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
  "zero_allow_untested_optimizer": true
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 2},
  "zero_allow_untested_optimizer": true,
  "optimizer": {"type": "SGD", "params": {"lr": 0.1}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 2},
  "optimizer": {"type": "Adagrad", "params": {"lr": 0.1}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    built, config = optimizer_from_config(context), context.config
    allowed = config.top.get(SWITCH)
    if built is None or config.zero_stage not in (1, 2, 3) or allowed:
        return
    choice = resolve_optimizer(config)
    if choice is None or choice.is_tested_with_zero is not False:
        return
    yield Finding(
        at=("optimizer", "type"),
        message=f"{zero_stage(context)} refuses {choice.full_name}: DeepSpeed has not tested the two together, and"
        f" {SWITCH} is {shown(allowed)} ({origin(context, SWITCH)})",
        help=f'set "{SWITCH}": true at the root of the config, or use AdamW',
        fix=replaced((SWITCH,), True, is_safe=False),
        depends_on=built.depends_on,
    )


RULE = Rule(
    code="DSA505",
    name="untested-optimizer-with-zero",
    summary="ZeRO is to shard an optimizer that DeepSpeed has not tested it with",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
