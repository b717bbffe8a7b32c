"""Only a part of the optimizer is to be offloaded, which ZeRO stage 3 alone can do.

`ratio` splits the optimizer states between CPU and GPU (Twin-Flow, in ZeRO-Offload++). ZeRO-1 and ZeRO-2 offload all of
them or nothing, and DeepSpeed refuses another ratio than 1 below stage 3, even where the device is "none".
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.schema import checks_value
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.mends import removed
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu", "ratio": 0.3}
  }
}
""",
        reports=(
            Report(
                at="zero_optimization.offload_optimizer.ratio",
                message="zero_optimization.offload_optimizer.ratio 0.3 offloads a part of the optimizer, which takes"
                " ZeRO stage 3 instead of ZeRO stage 2 (line 4)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu"}
  }
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {"device": "cpu", "ratio": 0.3}
  }
}
"""
    ),
)

_BLOCK = "zero_optimization.offload_optimizer"


def check(context: LintContext) -> Iterator[Finding]:
    offload = context.block(_BLOCK)
    ratio = offload.get("ratio")
    if not offload.present or ratio is None or ratio >= 1 or context.config.zero_stage not in (0, 1, 2):
        return
    if not checks_value(context.version, _BLOCK, "ratio"):
        return
    yield Finding(
        at=(*offload.path, "ratio"),
        message=f"{_BLOCK}.ratio {shown(ratio)} offloads a part of the optimizer, which takes ZeRO stage 3 instead of"
        f" {zero_stage(context)}",
        help="remove it to offload everything, or use stage 3",
        fix=removed((*offload.path, "ratio"), is_safe=False),
    )


RULE = Rule(
    code="DSA202",
    name="partial-offload-without-stage-3",
    summary="a part of the optimizer is to be offloaded below ZeRO stage 3",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
)
