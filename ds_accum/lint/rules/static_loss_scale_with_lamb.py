"""LAMB is to run with a static loss scale.

DeepSpeed's LAMB wants dynamic loss scaling and asserts it at start. It looks at `fp16.loss_scale` alone: since 0.17.1 a
number left in the block stops a LAMB run even while fp16 is off.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.built_from_config import optimizer_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.mends import removed
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "Lamb", "params": {"lr": 1e-3}},
  "fp16": {"enabled": true, "loss_scale": 128}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="fp16.loss_scale",
                message='fp16.loss_scale is 128, but the optimizer "Lamb" (line 3) needs dynamic loss scaling, which'
                " is 0",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "Lamb", "params": {"lr": 1e-3}},
  "fp16": {"enabled": true}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
  "fp16": {"enabled": true, "loss_scale": 128},
  "zero_optimization": {"stage": 1}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    name, fp16 = context.block("optimizer").get("type"), context.block("fp16")
    built = optimizer_from_config(context)
    if not isinstance(name, str) or name.lower() != "lamb" or built is None:
        return
    scale = fp16.get("loss_scale")
    if scale in (None, 0) or not (fp16.block.kind == "model" or context.config.enabled("fp16")):
        return
    yield Finding(
        at=("fp16", "loss_scale"),
        message=f"fp16.loss_scale is {_number(scale)}, but the optimizer {shown(name)}"
        f" ({context.line('optimizer', 'type')}) needs dynamic loss scaling, which is 0",
        help="remove it, or set it to 0",
        depends_on=built.depends_on,
        # An optimizer of the script's own would train with this scale.
        fix=removed(
            ("fp16", "loss_scale"),
            is_safe=built.depends_on is None or not context.config.enabled("fp16"),
        ),
    )


def _number(scale: object) -> str:
    return shown(int(scale)) if isinstance(scale, float) and scale.is_integer() else shown(scale)


RULE = Rule(
    code="DSA308",
    name="static-loss-scale-with-lamb",
    summary="the optimizer LAMB is to run with a static loss scale",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
