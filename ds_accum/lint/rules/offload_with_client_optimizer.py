"""Optimizer offload with an optimizer of the script's own.

DeepSpeed expects DeepSpeedCPUAdam or DeepSpeedCPULion there and refuses any other, because updating on the CPU with a
GPU optimizer is slow. `zero_force_ds_cpu_optimizer: false` at the root allows it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.support import optimizer_device
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule

_CONFIG = """{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}%s
}
"""

BAD = (
    Example(
        config=_CONFIG % "",
        launch=Launch(world_size=1, client_optimizer=True),
        reports=(
            Report(
                at="zero_optimization.offload_optimizer",
                message="with optimizer offload DeepSpeed refuses the script's own optimizer, unless that is"
                " DeepSpeedCPUAdam or DeepSpeedCPULion",
            ),
        ),
        deepspeed=None,
    ),
)

GOOD = (
    Example(
        config=_CONFIG % ',\n  "zero_force_ds_cpu_optimizer": false',
        launch=Launch(world_size=1, client_optimizer=True),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    if not context.launch.client_optimizer or optimizer_device(context.config) not in ("cpu", "nvme"):
        return
    if context.config.top.get("zero_force_ds_cpu_optimizer"):
        yield Finding(
            at=("zero_optimization", "offload_optimizer"),
            on_key=True,
            message="with optimizer offload DeepSpeed refuses the script's own optimizer",
            help='pass DeepSpeedCPUAdam, or write "zero_force_ds_cpu_optimizer": false at the root of the config',
            depends_on="unless that is DeepSpeedCPUAdam or DeepSpeedCPULion",
        )


RULE = Rule(
    code="DSA520",
    name="offload-with-client-optimizer",
    summary="optimizer offload with an optimizer of the script's own",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
