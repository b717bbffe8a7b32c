"""There is no optimizer, neither in the config nor in the script, so nothing can be trained.

DeepSpeed starts without one, because that is how it runs inference: with ZeRO-3 to spread the parameters, or without
ZeRO. The first `backward` then fails, each time with another message: "must provide optimizer during init in order to
use backward", "'DeepSpeedZeRoOffload' object has no attribute 'set_gradient_accumulation_boundary'", or an assertion
without a word. Nothing is said unless the launch says that the script passes none (`--client-optimizer no`). ZeRO-1 and
ZeRO-2 do not even start.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule

BAD = (
    Example(
        config='{"train_batch_size": 8, "zero_optimization": {"stage": 3}}',
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="",
                message="neither the config nor the script has an optimizer, and backward fails without one, if the"
                " script trains",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 3}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
    Example(
        config='{"train_batch_size": 8, "zero_optimization": {"stage": 3}}',
        launch=Launch(world_size=1, client_optimizer=True),
    ),
    Example(config='{"train_batch_size": 8}'),
)


def check(context: LintContext) -> Iterator[Finding]:
    config, optimizer = context.config, context.block("optimizer")
    if config.zero_stage not in (0, 3) or support.has_optimizer(config, context.launch) is not False:
        return
    if optimizer.present:
        return  # the rules about optimizers say what is wrong with it
    yield Finding(
        at=(),
        message="neither the config nor the script has an optimizer, and backward fails without one",
        help='add an "optimizer" block, or pass an optimizer to deepspeed.initialize',
        depends_on="if the script trains",
    )


RULE = Rule(
    code="DSA212",
    name="no-optimizer",
    summary="neither the config nor the script has an optimizer to train with",
    rationale=__doc__,
    when=When.FIRST_STEP,
    check=check,
    bad=BAD,
    good=GOOD,
)
