"""The config asks for something that the accelerator of the launch does not have.

DeepSpeed reads the same config on every accelerator, and much of it is written for CUDA alone: kernels without which
FusedLamb, FusedLion and the quantizer of ZeRO++ do not start, GPUDirect Storage, SuperOffload. The refusal comes from
deep inside and mostly without the name of the key: "This op had not been implemented on CPU backend." Trying a config
on a CPU before it goes to the cluster is a common case, and another is a config that is carried from NVIDIA to other
hardware.

`--accelerator` says for what a config is judged. The list is short on purpose: what is not on it may still be slow, or
fail, on an accelerator that DeepSpeed's own tests know less well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ds_accum.config import support
from ds_accum.config.accelerators import ACCELERATOR_LIMITS, AcceleratorLimit, Setting
from ds_accum.config.launch import Launch
from ds_accum.config.paths import NOTHING
from ds_accum.lint.built_from_config import Condition, any_optimizer, optimizer_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import origin, zero_stage
from ds_accum.lint.wording import dotted, shown

_ON_A_CPU = Launch(world_size=1, client_optimizer=False, accelerator="cpu")

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "aio": {"use_gds": true}
}
""",
        launch=_ON_A_CPU,
        reports=(
            Report(
                at="aio.use_gds",
                message='aio.use_gds true is refused on the accelerator "cpu", as GPUDirect Storage copies between NVMe'
                " and the memory of an NVIDIA GPU",
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "Lamb", "params": {"lr": 1e-3}}
}
""",
        launch=_ON_A_CPU,
        reports=(
            Report(
                at="optimizer.type",
                message='optimizer.type "Lamb" is refused on the accelerator "cpu", as FusedLamb is a CUDA kernel',
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "Lion", "params": {"lr": 1e-4}}
}
""",
        launch=_ON_A_CPU,
        reports=(
            Report(
                at="optimizer.type",
                message='optimizer.type "Lion" with zero_optimization.offload_optimizer.device "none" (the default) is'
                ' refused on the accelerator "cpu", as FusedLion is a CUDA kernel',
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 3, "zero_quantized_weights": true}
}
""",
        launch=_ON_A_CPU,
        reports=(
            Report(
                at="zero_optimization.zero_quantized_weights",
                message="zero_optimization.zero_quantized_weights true at ZeRO stage 3 (line 4) is refused on the"
                ' accelerator "cpu", as the quantizer is a CUDA kernel',
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 3, "zero_quantized_nontrainable_weights": true}
}
""",
        launch=_ON_A_CPU,
        reports=(
            Report(
                at="zero_optimization.zero_quantized_nontrainable_weights",
                message="zero_optimization.zero_quantized_nontrainable_weights true at ZeRO stage 3 (line 4) is refused"
                ' on the accelerator "cpu", as the quantizer is a CUDA kernel',
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "super_offload": true}}
}
""",
        launch=_ON_A_CPU,
        reports=(
            Report(
                at="zero_optimization.offload_optimizer.super_offload",
                message="zero_optimization.offload_optimizer.super_offload true at ZeRO stage 3 (line 4) is refused on"
                ' the accelerator "cpu", as SuperOffload is written for the link between an NVIDIA GPU and its CPU',
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {"device": "cpu"},
    "zenflow": {"update_interval": 4, "select_strategy": "step", "select_interval": 8}
  }
}
""",
        launch=_ON_A_CPU,
        reports=(
            Report(
                at="zero_optimization.zenflow",
                message="zero_optimization.zenflow at ZeRO stage 3 (line 5) with"
                " zero_optimization.zenflow.full_warm_up_rounds 0 (the default) is refused on the accelerator"
                ' "cpu", as ZenFlow at stage 3 allocates its gradients on "cuda" by name, unless torch finds a GPU as'
                " well",
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "checkpoint": {"writer": {"data_parallel": "replica"}}
}
""",
        launch=_ON_A_CPU,
        reports=(
            Report(
                at="checkpoint.writer.type",
                message='checkpoint.writer.type "FAST" (the default) is refused on the accelerator "cpu", as the fast'
                " writer pins its buffer, which torch does for a GPU only, unless torch finds a GPU as well",
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 1},
  "fp16": {"enabled": true}
}
""",
        launch=_ON_A_CPU,
        deepspeed=None,  # it depends on the CPU
        reports=(
            Report(
                at="fp16.enabled",
                message='fp16.enabled true is refused on the accelerator "cpu", as few CPUs have the fp16 instructions'
                " that oneDNN asks for, unless oneDNN has fp16 kernels for this CPU",
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
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true}
}
""",
        launch=_ON_A_CPU,
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "Lion", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
  "checkpoint": {"writer": {"type": "python", "data_parallel": "replica"}}
}
""",
        launch=_ON_A_CPU,
    ),
)

_OPTIMIZER_DEVICE = ("zero_optimization", "offload_optimizer", "device")
_ZERO_STAGE = ("zero_optimization", "stage")


def check(context: LintContext) -> Iterator[Finding]:
    for limit in ACCELERATOR_LIMITS:
        if not limit.holds_on(context.launch.accelerator) or context.version < (limit.since or ()):
            continue
        if not all(_holds(context, setting) for setting in limit.settings):
            continue
        condition = _condition(context, limit)
        if condition is None:
            continue
        to_change, *others = limit.settings
        said = " ".join([_said(context, to_change), *filter(None, (_beside(context, other) for other in others))])
        yield Finding(
            at=to_change.path,
            on_key=not to_change.values,
            when=When(limit.when),
            message=f"{said} is refused on the accelerator {shown(context.launch.accelerator)}, as {limit.reason}",
            help=limit.remedy,
            depends_on=condition.and_only(limit.unless),
        )


def _condition(context: LintContext, limit: AcceleratorLimit) -> Condition | None:
    """When DeepSpeed comes to what the limit is about; None: never."""
    if limit.settings[0].path[0] == "optimizer":
        return optimizer_from_config(context)
    return any_optimizer(context) if limit.of_the_optimizer else Condition()


def _holds(context: LintContext, setting: Setting) -> bool:
    if not _is_read(context, setting.path):
        return False
    if not setting.values:
        block = context.block(".".join(setting.path))
        return block.present and block.is_mapping
    value = _value(context, setting)
    return any(_is(value, wanted) for wanted in setting.values)


def _is_read(context: LintContext, path: tuple[str, ...]) -> bool:
    """Whether this release of DeepSpeed knows the key, and the blocks around it."""
    blocks = context.config.schema.blocks
    parents = [(blocks.get(".".join(path[:depth])), key) for depth, key in enumerate(path)]
    return all(block is not None and key in block.keys for block, key in parents)


def _value(context: LintContext, setting: Setting) -> Any:
    if setting.path == _OPTIMIZER_DEVICE:
        return support.optimizer_device(context.config)  # a deprecated switch sets it too
    return context.block(".".join(setting.path[:-1])).get(setting.path[-1], NOTHING)


def _is(value: Any, wanted: str | int | bool) -> bool:
    if value is NOTHING:
        return False
    if wanted is True:
        return bool(value)
    return value.lower() == wanted if isinstance(value, str) else bool(value == wanted)


def _said(context: LintContext, setting: Setting) -> str:
    """`optimizer.type "Lamb"`: the setting that the finding points at, and the word for a default that it is."""
    if not setting.values:
        return dotted(setting.path)
    is_default = origin(context, *setting.path) == "the default"
    return f"{dotted(setting.path)} {shown(_value(context, setting))}{' (the default)' if is_default else ''}"


def _beside(context: LintContext, setting: Setting) -> str | None:
    """`at ZeRO stage 3 (line 4)`: a further setting without which it would run; None for a block that is there."""
    if setting.path == _ZERO_STAGE:
        return f"at {zero_stage(context)}"
    if not setting.values:
        return None
    where = origin(context, *setting.path)
    return f"with {dotted(setting.path)} {shown(_value(context, setting))} ({where})"


RULE = Rule(
    code="DSA803",
    name="unsupported-by-the-accelerator",
    summary="a setting needs what the accelerator of the launch does not have",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
