"""A planned layout as a DeepSpeed config, and what no config can say: what the launch and the script have to do.

    deepspeed_config(planned)      # {"train_batch_size": 1024, "train_micro_batch_size_per_gpu": 1, ...}
    beyond_the_config(planned)     # ("build the model with tensor parallel 8 ...", ...)

The config asks for just what the estimate assumed: the dtype that gradients add up and travel in, the stage, offload
and overlap. Values that are DeepSpeed's defaults are left out, but for `gradient_clipping`, whose default changed.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ds_accum.batch import ParallelLayout
from ds_accum.errors import UsageError
from ds_accum.plan.planned import PlannedLayout
from ds_accum.plan.training import Optimizer, TrainingSetup, sent_dtype

__all__ = ["beyond_the_config", "config_text", "deepspeed_config", "launch_degrees", "writable_optimizers"]

_ADAM = {"betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}

# Optimizer of the estimate -> its type in a config, and its parameters beside the learning rate.
_OPTIMIZERS: dict[Optimizer, tuple[str, dict[str, Any]]] = {
    "adamw": ("AdamW", _ADAM),
    # In DeepSpeed "Adam" is AdamW unless told otherwise.
    "adam": ("Adam", {"betas": [0.9, 0.95], "eps": 1e-8, "adam_w_mode": False}),
    "lion": ("Lion", {"betas": [0.9, 0.95], "weight_decay": 0.1}),
}


def writable_optimizers() -> tuple[Optimizer, ...]:
    """Those whose config DeepSpeed runs at every ZeRO stage, offloaded or not."""
    return tuple(_OPTIMIZERS)


def deepspeed_config(
    planned: PlannedLayout, *, learning_rate: float = 1e-4, gradient_clipping: float = 1.0
) -> dict[str, Any]:
    """The config as DeepSpeed gets it. Raises UsageError for an optimizer that no config here can ask for."""
    training, ledger = planned.training, planned.ledger
    if training.optimizer not in _OPTIMIZERS:
        raise UsageError(
            f"no config is written for the optimizer {training.optimizer}",
            remedy=f"plan with one of {', '.join(_OPTIMIZERS)}, and replace it in the config",
        )
    name, parameters = _OPTIMIZERS[training.optimizer]
    config: dict[str, Any] = {
        "train_batch_size": ledger.global_batch_size,
        "train_micro_batch_size_per_gpu": ledger.micro_batch_size,
        "gradient_accumulation_steps": ledger.gradient_accumulation_steps,
        "gradient_clipping": gradient_clipping,
        "optimizer": {"type": name, "params": {"lr": learning_rate, **parameters}},
        **_precision(planned.layout, training),
        "zero_optimization": _zero(training),
    }
    if planned.layout.pipeline_parallel_size > 1 and training.recompute == "full":
        config["pipeline"] = {"activation_checkpoint_interval": 1}
    return config


def config_text(config: dict[str, Any]) -> str:
    """The config as JSON text, a list of numbers on one line."""
    text = json.dumps(config, indent=2)
    return re.sub(r"\[\s*([^][{}]*?)\s*\]", lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"


def launch_degrees(planned: PlannedLayout) -> str:
    """The launch as options of `ds-accum lint`: "--world-size 64 --tp 8 --pp 2"."""
    layout = planned.layout
    degrees = (
        ("tp", layout.tensor_parallel_size),
        ("pp", layout.pipeline_parallel_size),
        ("cp", layout.context_parallel_size),
        ("sp", layout.sequence_parallel_size),
        ("ep", layout.expert_parallel_size),
    )
    return " ".join((f"--world-size {layout.world_size}", *(f"--{name} {size}" for name, size in degrees if size > 1)))


def beyond_the_config(planned: PlannedLayout) -> tuple[str, ...]:
    """What the script and the launch have to see to, one clause each."""
    layout, training = planned.layout, planned.training
    said = []
    if layout.tensor_parallel_size > 1:
        also = ", with Megatron's sequence parallel" if training.megatron_sequence_parallel else ""
        said.append(
            f"build the model with tensor parallel {layout.tensor_parallel_size}{also}, and pass its mpu to initialize"
        )
    if layout.pipeline_parallel_size > 1:
        said.append(f"build a PipelineModule of {layout.pipeline_parallel_size} stages, each of as many layers")
    if layout.sequence_parallel_size > 1:
        said.append(
            f"wrap attention for Ulysses over {layout.sequence_parallel_size} ranks, and pass their mpu to initialize"
        )
    if layout.context_parallel_size > 1:
        said.append(f"bring ring attention over {layout.context_parallel_size} ranks: DeepSpeed has none of its own")
    if layout.expert_parallel_size > 1:
        said.append(f"build the expert layers with ep_size={layout.expert_parallel_size}")
    if training.flash_attention:
        said.append("use FlashAttention")
    if training.recompute == "full" and layout.pipeline_parallel_size == 1:
        said.append("checkpoint the activations of every layer (gradient_checkpointing_enable, or torch's checkpoint)")
    if training.recompute == "selective":
        said.append("checkpoint the core of attention alone")
    return tuple(said)


def _precision(layout: ParallelLayout, training: TrainingSetup) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if training.dtype != "fp32":
        said[training.dtype] = {"enabled": True}
    if training.accumulation_dtype != training.dtype:
        said["data_types"] = {"grad_accum_dtype": training.accumulation_dtype}
    # With Ulysses DeepSpeed looks at another key (0.19.8, runtime/engine.py:2182), whose default is float32.
    is_split = layout.sequence_parallel_size > 1
    key = "seq_parallel_communication_data_type" if is_split else "communication_data_type"
    sent = sent_dtype(layout, training)
    if sent != ("fp32" if is_split else training.dtype):
        said[key] = sent
    return said


def _zero(training: TrainingSetup) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": training.zero_stage}
    if training.zero_stage == 2 and training.overlaps_communication:
        zero["overlap_comm"] = True
    for block, place in (
        ("offload_optimizer", training.offload_optimizer),
        ("offload_param", training.offload_parameters),
    ):
        if place != "none":
            zero[block] = {"device": place, "pin_memory": True}
    if training.zero_stage == 3:
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    return zero
