"""ZeRO with an optimizer that DeepSpeed has not tested it with.

Adam, AdamW, Adagrad, Lion and Muon are; SGD, RMSprop, Lamb and the rest of `torch.optim` need
`zero_allow_untested_optimizer: true` at the root (inside `zero_optimization` the key is refused).
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.optimizers import resolve_optimizer
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import UNLESS_THE_SCRIPT_PASSES_ONE, zero_stage

_CONFIG = """{
  "train_batch_size": 8,
  "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
  "zero_optimization": {"stage": 1}%s
}
"""

BAD = (
    Example(
        config=_CONFIG % "",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.type",
                message="torch.optim.SGD is untested with ZeRO stage 1 (line 4), and zero_allow_untested_optimizer is"
                " not set",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config=_CONFIG % ',\n  "zero_allow_untested_optimizer": true',
        launch=Launch(world_size=1, client_optimizer=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    if not context.config.zero_stage or context.launch.client_optimizer:
        return
    if context.config.top.get("zero_allow_untested_optimizer"):
        return
    choice = resolve_optimizer(context.config)
    if choice is None or choice.is_tested_with_zero is not False:
        return
    yield Finding(
        at=("optimizer", "type"),
        message=f"{choice.full_name} is untested with {zero_stage(context)}, and zero_allow_untested_optimizer is not"
        " set",
        help='write "zero_allow_untested_optimizer": true at the root of the config, or use AdamW',
        depends_on=None if context.builds_optimizer_from_config else UNLESS_THE_SCRIPT_PASSES_ONE,
    )


RULE = Rule(
    code="DSA505",
    name="untested-optimizer-with-zero",
    summary="an optimizer that DeepSpeed has not tested with ZeRO",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
