"""An offload is set up that moves nothing off the accelerator.

`offload_param` exists at ZeRO stage 3 only; below, the parameters stay where they are. An offload block without a
`device` means the device "none". Without ZeRO `offload_optimizer` moves nothing either, and yet Adam becomes
DeepSpeedCPUAdam, which can't step on parameters that are on an accelerator. DeepSpeed says nothing about any of this:
what one notices is the memory that is not freed.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, RemoveKey, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "offload_param": {"device": "cpu"}
  }
}
""",
        reports=(
            Report(
                at="zero_optimization.offload_param.device",
                message='offload_param to "cpu" takes ZeRO stage 3: at ZeRO stage 2 (line 5) the parameters stay on the'
                " accelerator",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2
  }
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"pin_memory": false}
  }
}
""",
        reports=(
            Report(
                at="zero_optimization.offload_optimizer",
                message='offload_optimizer names no device, which is "none" by default, and nothing is offloaded',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"pin_memory": false, "device": "cpu"}
  }
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"offload_optimizer": {"device": "cpu"}}
}
""",
        reports=(
            Report(
                at="zero_optimization.offload_optimizer.device",
                message='offload_optimizer to "cpu" takes ZeRO: at ZeRO stage 0 (the default) the optimizer states stay'
                " where the parameters are",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {}
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
    "offload_param": {"device": "cpu"},
    "offload_optimizer": {"device": "cpu"}
  }
}
"""
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "offload_param": {"device": "none"},
    "offload_optimizer": {"device": "none"}
  }
}
"""
    ),
)

_ZERO = "zero_optimization"


def check(context: LintContext) -> Iterator[Finding]:
    stage = context.config.zero_stage
    if stage is None:
        return
    for name, lowest in (("offload_param", 3), ("offload_optimizer", 1)):
        offload = context.block(f"{_ZERO}.{name}")
        if not offload.present or not offload.is_mapping or offload.errors:
            continue
        device = offload.get("device")
        if device in ("cpu", "nvme") and stage < lowest:
            yield _below_its_stage(context, name, device)
        elif offload.raw and not offload.written("device") and not _is_filled_in(context, (*offload.path, "device")):
            yield Finding(
                at=offload.path,
                on_key=True,
                message=f'{name} names no device, which is "none" by default, and nothing is offloaded',
                help='add "device": "cpu", or remove the block',
                fix=Fix(title='set device to "cpu"', changes=(SetValue((*offload.path, "device"), "cpu"),)),
            )


def _below_its_stage(context: LintContext, name: str, device: str) -> Finding:
    if name == "offload_param":
        what = f"takes ZeRO stage 3: at {zero_stage(context)} the parameters stay on the accelerator"
    else:
        what = f"takes ZeRO: at {zero_stage(context)} the optimizer states stay where the parameters are"
    # Without ZeRO the block still chooses the class of Adam.
    chooses_adam = name == "offload_optimizer" and support.builds_cpu_adam(context.config)
    return Finding(
        at=(_ZERO, name, "device"),
        message=f"{name} to {shown(device)} {what}",
        help="remove the block, or use ZeRO stage " + ("3" if name == "offload_param" else "1, 2 or 3"),
        fix=Fix(title=f"remove {name}", changes=(RemoveKey((_ZERO, name)),), is_safe=not chooses_adam),
    )


def _is_filled_in(context: LintContext, path: tuple[str | int, ...]) -> bool:
    return path in context.embedded.filled_in


RULE = Rule(
    code="DSA223",
    name="offload-without-effect",
    summary="an offload is set up that moves nothing off the accelerator",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    severity=Severity.WARNING,
    bad=BAD,
    good=GOOD,
)
