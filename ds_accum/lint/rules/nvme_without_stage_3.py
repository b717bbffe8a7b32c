"""The optimizer is to be offloaded to NVMe, and stays in host memory.

Only ZeRO-3 swaps to NVMe. ZeRO-1 and ZeRO-2 take the device for any offload and keep the states in the CPU's memory:
`nvme_path` is not looked at, and a job that was sized for the disk runs out of host memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage

_DEVICE = ("zero_optimization", "offload_optimizer", "device")

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}
  }
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="zero_optimization.offload_optimizer.device",
                message="ZeRO stage 2 (line 6) offloads the optimizer to the CPU's memory, not to nvme",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu", "nvme_path": "/local_nvme"}
  }
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    if config.zero_stage not in (1, 2) or support.optimizer_device(config) != "nvme":
        return
    if support.uses_bf16_optimizer(config):
        return  # this one offloads to nothing at all
    yield Finding(
        at=_DEVICE,
        message=f"{zero_stage(context)} offloads the optimizer to the CPU's memory, not to nvme",
        help='use stage 3 for NVMe, or write the device "cpu"',
        fix=Fix('write "cpu", which is where it goes', (SetValue(_DEVICE, "cpu"),), is_safe=True),
    )


RULE = Rule(
    code="DSA551",
    name="nvme-without-stage-3",
    summary="the optimizer is offloaded to the CPU, and not to NVMe, below ZeRO stage 3",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
