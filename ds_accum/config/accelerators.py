"""What DeepSpeed refuses on one accelerator only: settings that are right on a GPU and can't start elsewhere.

A config is judged for the accelerator it will run on (`--accelerator`, "cuda" unless said otherwise). The conformance
tests run DeepSpeed on a CPU and ask the same table which refusals are the CPU's doing and not the config's. The list is
short on purpose: each entry is a refusal seen from DeepSpeed 0.19.8, with the place in its source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ds_accum.config.schema import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A key by its path, and the values it may have, as DeepSpeed ends up with them: coerced, defaults filled in.

    No values: it is enough that the block is there. Words are compared without case, true stands for all that is true.
    """

    path: tuple[str, ...]
    values: tuple[str | int | bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorLimit:
    """Settings that `accelerator` refuses together; the first of them is the one to change.

    With `only_cuda`, every accelerator but CUDA refuses them. `refusal` is a part of DeepSpeed's own exception, raised
    `when` the config is loaded, the engine starts or the first step is taken, in `source`, by DeepSpeed `since` that
    release where an older one has the settings too. `reason` says what the settings need, `remedy` what to do.
    `of_the_optimizer` is true where only an optimizer, the config's or the script's, runs into it. `unless` names, as a
    clause, on what of the machine it depends.
    """

    accelerator: str
    settings: tuple[Setting, ...]
    refusal: str
    when: Literal["load", "start", "first step"]
    reason: str
    remedy: str
    source: str
    only_cuda: bool = False
    since: Version | None = None
    of_the_optimizer: bool = False
    unless: str | None = None

    def holds_on(self, accelerator: str) -> bool:
        """Whether this accelerator refuses the settings."""
        return accelerator == self.accelerator or (self.only_cuda and accelerator != "cuda")


_NOT_COMPILED_FOR_CPU = "This op had not been implemented on CPU backend."
_STAGE_3 = Setting(path=("zero_optimization", "stage"), values=(3,))

ACCELERATOR_LIMITS: tuple[AcceleratorLimit, ...] = (
    AcceleratorLimit(
        accelerator="cpu",
        settings=(Setting(path=("aio", "use_gds"), values=(True,)),),
        refusal="GDS currently only supported for CUDA accelerator",
        when="load",
        reason="GPUDirect Storage copies between NVMe and the memory of an NVIDIA GPU",
        remedy="write false, or leave it out",
        source="runtime/swap_tensor/aio_config.py, get_aio_config",
        only_cuda=True,
    ),
    AcceleratorLimit(
        accelerator="cpu",
        settings=(Setting(path=("fp16", "enabled"), values=(True,)),),
        refusal="Type fp16 is not supported on your device.",
        when="start",
        reason="few CPUs have the fp16 instructions that oneDNN asks for",
        remedy="use bf16, which runs on every CPU",
        source="runtime/engine.py, _do_sanity_check; accelerator/cpu_accelerator.py, is_fp16_supported",
        unless="unless oneDNN has fp16 kernels for this CPU",
    ),
    AcceleratorLimit(
        accelerator="cpu",
        settings=(Setting(path=("optimizer", "type"), values=("lamb",)),),
        refusal=_NOT_COMPILED_FOR_CPU,
        when="start",
        reason="FusedLamb is a CUDA kernel",
        remedy="use another optimizer, such as AdamW",
        source="ops/lamb/fused_lamb.py",
    ),
    AcceleratorLimit(
        accelerator="cpu",
        settings=(
            Setting(path=("optimizer", "type"), values=("lion",)),
            Setting(path=("zero_optimization", "offload_optimizer", "device"), values=("none",)),
        ),
        refusal=_NOT_COMPILED_FOR_CPU,
        when="start",
        reason="FusedLion is a CUDA kernel",
        remedy='set zero_optimization.offload_optimizer.device to "cpu", which selects DeepSpeedCPULion',
        source="ops/lion/fused_lion.py",
    ),
    AcceleratorLimit(
        accelerator="cpu",
        settings=(Setting(path=("zero_optimization", "zero_quantized_weights"), values=(True,)), _STAGE_3),
        refusal=_NOT_COMPILED_FOR_CPU,
        when="start",
        reason="the quantizer is a CUDA kernel",
        remedy="leave it out",
        source="runtime/zero/partition_parameters.py, CUDAQuantizer",
    ),
    AcceleratorLimit(
        accelerator="cpu",
        settings=(Setting(path=("zero_optimization", "zero_quantized_nontrainable_weights"), values=(True,)), _STAGE_3),
        refusal=_NOT_COMPILED_FOR_CPU,
        when="start",
        reason="the quantizer is a CUDA kernel",
        remedy="leave it out",
        source="runtime/zero/partition_parameters.py, CUDAQuantizer",
    ),
    AcceleratorLimit(
        accelerator="cpu",
        settings=(Setting(path=("zero_optimization", "offload_optimizer", "super_offload"), values=(True,)), _STAGE_3),
        refusal="SuperOffload only supports NVIDIA CUDA GPUs",
        when="start",
        reason="SuperOffload is written for the link between an NVIDIA GPU and its CPU",
        remedy="leave it out",
        source="runtime/superoffload/superoffload_stage3.py, _validate_superoffload_accelerator",
        only_cuda=True,
        since=(0, 18, 9),
        of_the_optimizer=True,
    ),
    AcceleratorLimit(
        accelerator="cpu",
        settings=(
            Setting(path=("zero_optimization", "zenflow"), values=()),
            _STAGE_3,
            # The rounds of warming up do without; what follows them is not the first step.
            Setting(path=("zero_optimization", "zenflow", "full_warm_up_rounds"), values=(0,)),
        ),
        refusal="Torch not compiled with CUDA enabled",
        when="first step",
        reason='ZenFlow at stage 3 allocates its gradients on "cuda" by name',
        remedy="use ZeRO stage 2, or leave zenflow out",
        source="runtime/zenflow/engine_stage3.py, update_selected_channels",
        of_the_optimizer=True,
        unless="unless torch finds a GPU as well",
    ),
    AcceleratorLimit(
        accelerator="cpu",
        settings=(
            Setting(path=("checkpoint", "writer", "type"), values=("fast",)),
            Setting(path=("checkpoint", "writer"), values=()),
        ),
        refusal="Cannot access accelerator device when none is available",
        when="start",
        reason="the fast writer pins its buffer, which torch does for a GPU only",
        remedy='set checkpoint.writer.type to "python"',
        source="runtime/model_checkpointing/writer_factory.py, _setup_for_aio",
        unless="unless torch finds a GPU as well",
    ),
)


def limits_behind(exception: str, *, accelerator: str) -> tuple[AcceleratorLimit, ...]:
    """The limits of an accelerator that an exception of DeepSpeed's may come from; none if it has another cause."""
    return tuple(limit for limit in ACCELERATOR_LIMITS if limit.holds_on(accelerator) and limit.refusal in exception)
