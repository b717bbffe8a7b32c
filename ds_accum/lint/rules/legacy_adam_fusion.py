"""`legacy_fusion` calls DeepSpeed's Adam in a way that it has long refused.

Without ZeRO, a model in fp16 or bf16 is trained by a wrapper that has two ways to call its optimizer. The legacy one,
for an Adam of years ago, hands it the gradients; today's FusedAdam takes them from the parameters and refuses:
"FusedAdam has been updated. Simply initialize it identically to torch.optim.Adam". ZeRO, fp32 and all other optimizers
ignore the switch.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.config.optimizers import resolve_optimizer
from ds_accum.lint.built_from_config import class_behind_the_type, optimizer_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "fp16": {"enabled": true},
  "optimizer": {"type": "Adam", "params": {"lr": 1e-4}, "legacy_fusion": true}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.legacy_fusion",
                message='optimizer.legacy_fusion is true, which FusedAdam, which DeepSpeed builds for "Adam" (line 4),'
                " refuses in fp16 without ZeRO",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "fp16": {"enabled": true},
  "optimizer": {"type": "Adam", "params": {"lr": 1e-4}}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "fp16": {"enabled": true},
  "zero_optimization": {"stage": 1},
  "optimizer": {"type": "Adam", "params": {"lr": 1e-4}, "legacy_fusion": true}
}
"""
    ),
)

_AT = ("optimizer", "legacy_fusion")


def check(context: LintContext) -> Iterator[Finding]:
    built, config = optimizer_from_config(context), context.config
    legacy = config.block("optimizer").get("legacy_fusion")
    if built is None or not legacy or config.zero_stage != 0:
        return
    dtype = support.model_dtype(config)
    # bf16 that accumulates in fp32 had a wrapper of its own, which was the default before 0.17.6.
    if dtype == "fp32" or support.accumulates_in(config) != dtype:
        return
    choice = resolve_optimizer(config)
    if choice is None or choice.name != "FusedAdam":
        return
    yield Finding(
        at=_AT,
        message=f"optimizer.legacy_fusion is {shown(legacy)}, which {class_behind_the_type(context, choice)}, refuses"
        f" in {dtype} without ZeRO",
        help="remove it",
        depends_on=built.depends_on,
        fix=Fix(title="remove optimizer.legacy_fusion", changes=(RemoveKey(_AT),), is_safe=True),
    )


RULE = Rule(
    code="DSA507",
    name="legacy-adam-fusion",
    summary="legacy_fusion calls DeepSpeed's Adam in a way that it refuses",
    rationale=__doc__,
    when=When.FIRST_STEP,
    check=check,
    bad=BAD,
    good=GOOD,
)
