"""Master weights in half precision are asked for without the one optimizer that can keep them.

An optimizer that steps on the accelerator needs its master weights in fp32. DeepSpeedCPUAdam alone keeps them in half
precision, beside states in fp32, and it runs only where the optimizer is offloaded. `bf16_optimizer_states` lifts this
for an optimizer that is not offloaded. DeepSpeed checks when it builds the optimizer, whether or not fp16 or bf16
itself is on.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.document import Path
from ds_accum.config.launch import Launch
from ds_accum.lint.built_from_config import any_optimizer, optimizer_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import origin
from ds_accum.lint.wording import dotted, shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": true, "bf16_master_weights_and_grads": true},
  "zero_optimization": {"stage": 2}
}
""",
        reports=(
            Report(
                at="bf16.bf16_master_weights_and_grads",
                message="bf16.bf16_master_weights_and_grads needs DeepSpeedCPUAdam, but offload_optimizer is off",
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
  "zero_allow_untested_optimizer": true,
  "fp16": {"enabled": true, "fp16_master_weights_and_grads": true},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="fp16.fp16_master_weights_and_grads",
                message="fp16.fp16_master_weights_and_grads needs DeepSpeedCPUAdam, but the optimizer is"
                ' "SGD" (line 3)',
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": true, "bf16_master_weights_and_grads": true},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    if config.zero_stage not in (1, 2, 3) or support.uses_bf16_optimizer(config):
        return
    bf16 = context.block("bf16")
    fp16_path: Path = ("fp16", "fp16_master_weights_and_grads")
    bf16_path: Path = (*bf16.path, "bf16_master_weights_and_grads")
    keeps_fp16, keeps_bf16 = support.keeps_fp16_master_weights(config), bool(bf16.get(str(bf16_path[-1])))
    optimizer = any_optimizer(context)
    if config.zero_stage == 3 and optimizer is None:
        return
    # Without an optimizer ZeRO-1 and 2 refuse to start for that reason, ZeRO-3 starts.
    depends_on = optimizer.depends_on if optimizer is not None and config.zero_stage == 3 else None
    if keeps_fp16 and keeps_bf16:
        yield Finding(
            at=bf16_path,
            message=f"{dotted(bf16_path)} and {dotted(fp16_path)} ({origin(context, 'fp16', str(fp16_path[-1]))})"
            " exclude each other",
            help="keep the one of the precision that the model has",
            depends_on=depends_on,
        )
        return
    path = fp16_path if keeps_fp16 else bf16_path
    device = support.optimizer_device(config)
    if keeps_fp16 or (keeps_bf16 and not _keeps_states_beside(context, device)):
        if device == "none":
            yield Finding(
                at=path,
                message=f"{dotted(path)} needs DeepSpeedCPUAdam, but offload_optimizer is off",
                help='add "offload_optimizer": {"device": "cpu"} to zero_optimization, or remove it',
                depends_on=depends_on,
            )
        elif device is not None:
            yield from _other_optimizer(context, path)


def _keeps_states_beside(context: LintContext, device: str | None) -> bool:
    """Whether bf16 states spare bf16 master weights the CPU; since 0.19.1 not where the states are offloaded."""
    offloaded = device in ("cpu", "nvme") and context.version >= (0, 19, 1)
    return bool(context.block("bf16").get("bf16_optimizer_states")) and not offloaded


def _other_optimizer(context: LintContext, path: Path) -> Iterator[Finding]:
    config = context.config
    name, built = config.block("optimizer").get("type"), optimizer_from_config(context)
    if not isinstance(name, str) or support.builds_cpu_adam(config) or built is None:
        return
    if support.zenflow(config) is not None and name.lower() in ("adam", "adamw"):
        other = f"zenflow ({context.line('zero_optimization', 'zenflow')}) has an Adam of its own"
    else:
        kind = f"torch's {shown(name)}" if name.lower() in ("adam", "adamw") else shown(name)
        other = f"the optimizer is {kind} ({context.line('optimizer', 'type')})"
    yield Finding(
        at=path,
        message=f"{dotted(path)} needs DeepSpeedCPUAdam, but {other}",
        help="use Adam or AdamW, or remove it",
        depends_on=built.depends_on,
    )


RULE = Rule(
    code="DSA304",
    name="master-weights-without-cpu-adam",
    summary="master weights in half precision without the optimizer that can keep them",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
