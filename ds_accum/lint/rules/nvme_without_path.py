"""Parameters or optimizer states are to be kept on NVMe, and the config does not say where.

ZeRO-3 needs a folder for its swap files. The config loads without one; the engine then fails when it builds the
swapper, for parameters with an assertion, for optimizer states with a `TypeError` about paths that names no key. Below
stage 3 nothing goes to NVMe, whatever the config says.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.lint.built_from_config import any_optimizer
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {"device": "nvme"}
  }
}
""",
        reports=(
            Report(
                at="zero_optimization.offload_optimizer.nvme_path",
                message='zero_optimization.offload_optimizer has the device "nvme", but no nvme_path',
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "zero_optimization": {
    "stage": 3,
    "offload_param": {"device": "nvme", "nvme_path": null}
  }
}
""",
        reports=(
            Report(
                at="zero_optimization.offload_param.nvme_path",
                message='zero_optimization.offload_param has the device "nvme", but no nvme_path',
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {"device": "cpu"}
  }
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    if context.config.zero_stage != 3:
        return
    for name in ("offload_param", "offload_optimizer"):
        offload = context.block(f"zero_optimization.{name}")
        if not offload.present or offload.get("device") != "nvme" or offload.get("nvme_path", "") is not None:
            continue
        depends_on = None
        if name == "offload_optimizer":
            optimizer = any_optimizer(context)
            if optimizer is None:
                continue
            depends_on = optimizer.depends_on
        yield Finding(
            at=(*offload.path, "nvme_path"),
            message=f'zero_optimization.{name} has the device "nvme", but no nvme_path',
            help='add "nvme_path" with a folder on the NVMe drive',
            depends_on=depends_on,
        )


RULE = Rule(
    code="DSA208",
    name="nvme-without-path",
    summary="an offload of ZeRO-3 to NVMe has no path",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
