"""`offload_optimizer` makes the optimizer one for the CPU, and nothing moves the parameters there.

The class is picked by the device of `offload_optimizer` alone: Adam becomes DeepSpeedCPUAdam at every stage. But only
the wrappers of ZeRO-1, 2 and 3 move anything. Without ZeRO, and at ZeRO-1 with fp32 accumulation of bf16 on NVMe
(which is another wrapper), the parameters stay on the accelerator, and the first step stops with "CPUAdam param is on
cuda:0 and must be 'cpu'". On a CPU the job trains.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.config.optimizers import resolve_optimizer
from ds_accum.lint.built_from_config import class_behind_the_type, optimizer_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="zero_optimization.offload_optimizer.device",
                message='DeepSpeedCPUAdam, which DeepSpeed builds for "AdamW" (line 4) while its states are offloaded,'
                " steps on the CPU only, but ZeRO stage 0 (line 5) leaves the parameters on the accelerator",
            ),
        ),
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
    config, built = context.config, optimizer_from_config(context)
    device = support.optimizer_device(config)
    if built is None or device not in ("cpu", "nvme") or context.launch.accelerator == "cpu":
        return
    if config.zero_stage != 0 and not support.uses_bf16_optimizer(config):
        return
    choice = resolve_optimizer(config)
    if choice is None or "CPU" not in choice.name:
        return
    written = config.block("zero_optimization.offload_optimizer").written("device")
    yield Finding(
        at=("zero_optimization", *(("offload_optimizer", "device") if written else ("cpu_offload",))),
        message=f"{class_behind_the_type(context, choice)}, steps on the CPU only, but {zero_stage(context)} leaves the"
        " parameters on the accelerator",
        help="use ZeRO stage 1, 2 or 3, or remove the offload" if config.zero_stage == 0 else 'write the device "cpu"',
        depends_on=built.depends_on,
    )


RULE = Rule(
    code="DSA536",
    name="cpu-optimizer-on-accelerator",
    summary="the optimizer is built for the CPU, and the parameters stay on the accelerator",
    rationale=__doc__,
    when=When.FIRST_STEP,
    severity=Severity.WARNING,
    proof=Proof.READ,
    check=check,
    bad=BAD,
    good=GOOD,
)
