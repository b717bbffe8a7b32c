"""The script brings its own optimizer, and the config offloads its states.

ZeRO-Offload steps on the CPU, where torch's optimizers are many times slower than DeepSpeedCPUAdam. DeepSpeed therefore
refuses any optimizer of the script's own but DeepSpeedCPUAdam and DeepSpeedCPULion, at every ZeRO stage, until
`zero_force_ds_cpu_optimizer` is false. Hugging Face's Trainer and Accelerate replace the optimizer themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.mends import replaced
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import origin
from ds_accum.lint.wording import shown

SWITCH = "zero_force_ds_cpu_optimizer"

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}
}
""",
        launch=Launch(world_size=1, client_optimizer=True),
        reports=(
            Report(
                at="zero_optimization.offload_optimizer.device",
                message="the optimizer is offloaded to the cpu, and DeepSpeed refuses one of the script's own there"
                " while zero_force_ds_cpu_optimizer is true (the default), unless it is DeepSpeedCPUAdam or"
                " DeepSpeedCPULion",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
  "zero_force_ds_cpu_optimizer": false
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
  "zero_force_ds_cpu_optimizer": false
}
""",
        launch=Launch(world_size=1, client_optimizer=True),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config, launch = context.config, context.launch
    device, forced = support.optimizer_device(config), config.top.get(SWITCH)
    if launch.client_optimizer is not True or device not in ("cpu", "nvme") or not forced:
        return
    if launch.framework in ("huggingface", "accelerate"):
        return
    allowed = "DeepSpeedCPUAdam or DeepSpeedCPULion" if context.version >= (0, 17, 6) else "DeepSpeedCPUAdam"
    # The deprecated switch stands in the place of the block.
    written = config.block("zero_optimization.offload_optimizer").written("device")
    yield Finding(
        at=("zero_optimization", *(("offload_optimizer", "device") if written else ("cpu_offload",))),
        message=f"the optimizer is offloaded to the {device}, and DeepSpeed refuses one of the script's own there while"
        f" {SWITCH} is {shown(forced)} ({origin(context, SWITCH)})",
        help=f'pass {allowed}, let the config name the optimizer, or set "{SWITCH}": false at the root',
        fix=replaced((SWITCH,), False, is_safe=False),
        depends_on=f"unless it is {allowed}",
    )


RULE = Rule(
    code="DSA520",
    name="offload-needs-cpu-optimizer",
    summary="the script brings its own optimizer, and the config offloads its states",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
