"""Estimates: what the planner says that a variant holds, for the tensors of the model that was really trained.

    estimated_memory(variant, spec, tensors=[...])  ->  HeldMemory(parameters=..., gradients=..., optimizer_state=...)

The formulas are those of `ds_accum.plan.memory`; here a variant is only put into its terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ds_accum.compare.formulas import dtype_of
from ds_accum.compare.result import HeldMemory
from ds_accum.compare.spec import RunSpec, Variant
from ds_accum.config import support
from ds_accum.config.paths import mapping_at, value_at
from ds_accum.errors import ConfigError
from ds_accum.plan.memory import Line, Moment, Part, model_state_lines
from ds_accum.plan.training import Offload, Optimizer, TrainingSetup

__all__ = ["estimated_memory"]

_OPTIMIZERS: Mapping[str, Optimizer] = {"sgd": "sgd_momentum", "adamw": "adamw"}
"""What the worker builds: its SGD has momentum."""


def estimated_memory(variant: Variant, spec: RunSpec, *, tensors: Sequence[int]) -> HeldMemory | None:
    """Bytes of one rank right before its update, wherever they lie; None for what is not DeepSpeed or has no formula.

    `tensors` are the elements of each trainable parameter, in the order of `model.parameters()`.
    """
    if variant.engine not in ("stock", "token") or variant.stage is None:
        return None
    try:
        training = _training(variant, spec, variant.stage)
    except ConfigError:  # no DeepSpeed trains like this, or none that the planner knows
        return None
    # The planner counts what offloading needs at its worst, not what lies in the host's memory at one moment.
    if training is None or training.offload_optimizer != "none":
        return None
    lines = model_state_lines(tensors, spec.world_size, training)
    return HeldMemory(
        parameters=_bytes(lines, "parameters", "update"),
        # Right before the update: reduced, and not yet turned into what the optimizer takes.
        gradients=_bytes(lines, "gradients", "reduction", "conversion"),
        optimizer_state=_bytes(lines, "optimizer", "update"),
    )


def _training(variant: Variant, spec: RunSpec, stage: int) -> TrainingSetup | None:
    """The variant in the planner's terms; None where its config has something that they have no word for."""
    config = variant.config
    dtype = dtype_of(variant, spec)
    said = value_at(config, ("data_types", "grad_accum_dtype"))
    accumulated = support.dtype_of(said)
    if spec.optimizer not in _OPTIMIZERS or accumulated == "int8" or (said is not None and accumulated is None):
        return None
    zero = mapping_at(config, ("zero_optimization",))
    return TrainingSetup(
        zero_stage=stage,
        micro_batch_size=variant.micro_batch_size,
        gradient_accumulation_steps=variant.gradient_accumulation_steps,
        sequence_length=spec.workload.sequence_length,
        dtype=dtype,
        grad_accum_dtype=accumulated,
        optimizer=_OPTIMIZERS[spec.optimizer],
        offload_optimizer=_offload(zero, "offload_optimizer"),
        offload_parameters=_offload(zero, "offload_param"),
    )


def _offload(zero: Mapping[str, Any], key: str) -> Offload:
    device: Literal["none", "cpu", "nvme"] = value_at(zero, (key, "device")) or "none"
    return device


def _bytes(lines: Sequence[Line], part: Part, *moments: Moment) -> int:
    """Of one part what is held throughout these moments, on the device or off it."""
    return sum(line.bytes for line in lines if line.part == part and {*moments} <= {*line.moments})
