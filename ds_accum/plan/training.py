"""How a model is trained: the settings, beside its shape and the layout of its ranks, that memory and time depend on.

The defaults of buckets and thresholds are those of DeepSpeed 0.19.8 (deepspeed/runtime/zero/config.py), in elements.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

from ds_accum.batch import ParallelLayout
from ds_accum.batch.wording import require_integer
from ds_accum.errors import BatchError, ConfigError

__all__ = [
    "ELEMENT_BYTES",
    "OPTIMIZERS",
    "Dtype",
    "Offload",
    "Optimizer",
    "Recompute",
    "Schedule",
    "TrainingSetup",
    "sent_dtype",
]

Dtype = Literal["fp32", "bf16", "fp16"]
Optimizer = Literal["adam", "adamw", "lamb", "lion", "sgd", "sgd_momentum", "adagrad", "rmsprop", "muon"]
Recompute = Literal["none", "selective", "full"]
Schedule = Literal["1f1b", "gpipe", "interleaved"]
Offload = Literal["none", "cpu", "nvme"]

ELEMENT_BYTES: dict[Dtype, int] = {"fp32": 4, "bf16": 2, "fp16": 2}
OPTIMIZERS: tuple[Optimizer, ...] = get_args(Optimizer)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSetup:
    """Settings of a training; sizes of buckets are in elements.

    `grad_accum_dtype` None is the model's dtype, `communication_dtype` None what DeepSpeed sends by itself: see
    `sent_dtype`. `recompute` "selective" repeats the attention's core alone, "full" every layer from its input
    (Korthikanti et al. 2022, arXiv 2205.05198).
    `fused_kernels` says that norms, activation functions and the loss keep no intermediate results, as Megatron-LM's
    do; written in plain PyTorch, as in transformers, they keep more. `loss_in_fp32` says that logits are turned into
    float32 before the loss. `sequence_norm_gradients` says when the gradients of what every tensor-parallel rank holds
    whole are summed over those ranks under `megatron_sequence_parallel`.
    `virtual_stages` above 1 needs the interleaved schedule. `expert_capacity_factor` None drops no token and expects
    balance. Raises ConfigError and, for what belongs to the batch, BatchError.
    """

    zero_stage: int
    micro_batch_size: int
    gradient_accumulation_steps: int
    sequence_length: int
    dtype: Dtype = "bf16"
    grad_accum_dtype: Dtype | None = None
    communication_dtype: Dtype | None = None
    optimizer: Optimizer = "adamw"
    recompute: Recompute = "none"
    flash_attention: bool = True
    fused_kernels: bool = True
    dropout: bool = False
    loss_in_fp32: bool = True
    megatron_sequence_parallel: bool = False
    sequence_norm_gradients: Literal["each_micro_batch", "deferred"] = "each_micro_batch"
    schedule: Schedule = "1f1b"
    virtual_stages: int = 1
    layers_per_stage: tuple[int, ...] | None = None
    expert_capacity_factor: float | None = None
    offload_optimizer: Offload = "none"
    offload_parameters: Offload = "none"
    reduce_bucket_size: int = 500_000_000
    overlap_comm: bool | None = None
    contiguous_gradients: bool = True
    max_live_parameters: int = 1_000_000_000
    prefetch_bucket_size: int = 50_000_000
    param_persistence_threshold: int = 100_000

    def __post_init__(self) -> None:
        for name in ("micro_batch_size", "gradient_accumulation_steps"):
            require_integer(getattr(self, name), name=name.replace("_", " "), error=BatchError)
        for name in ("sequence_length", "virtual_stages", "reduce_bucket_size"):
            require_integer(getattr(self, name), name=name.replace("_", " "), error=ConfigError)
        for name in ("zero_stage", "max_live_parameters", "prefetch_bucket_size", "param_persistence_threshold"):
            require_integer(getattr(self, name), name=name.replace("_", " "), minimum=0, error=ConfigError)
        self._require_choices()
        self._require_agreement()

    def _require_choices(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices and not (value is None and name in _MAY_BE_NONE):
                said = value if isinstance(value, str) and len(value) <= 40 else type(value).__name__
                raise ConfigError(
                    f"{name.replace('_', ' ')} can't be {said}", remedy=f"give one of {', '.join(choices)}"
                )
        for name in _SIZES:
            if getattr(self, name) > _LARGEST:
                raise ConfigError(
                    f"{name.replace('_', ' ')} is beyond 10^15", remedy=f"give the real {name.replace('_', ' ')}"
                )

        spread: object = self.layers_per_stage
        if spread is not None:
            if not isinstance(spread, tuple) or not spread:
                raise ConfigError(
                    f"layers per stage can't be a {type(spread).__name__}", remedy="give a tuple of whole numbers"
                )
            for layers in spread:
                require_integer(layers, name="layers of a stage", error=ConfigError)

    def _require_agreement(self) -> None:
        if self.zero_stage > 3:
            raise ConfigError(
                f"ZeRO has the stages 0, 1, 2 and 3, not {self.zero_stage}", remedy="set the stage to 3 or less"
            )
        if self.zero_stage == 0 and self.accumulation_dtype != self.dtype:
            raise ConfigError(
                f"ZeRO stage 0 can't accumulate gradients of {self.dtype} in {self.accumulation_dtype}:"
                " DeepSpeed refuses it when it starts",
                remedy="set the stage to 1 or more, or leave the accumulation dtype out",
            )
        if self.offload_optimizer != "none" and self.zero_stage == 0:
            raise ConfigError("optimizer state can't be offloaded at ZeRO stage 0", remedy="set the stage to 1 or more")
        if self.offload_parameters != "none" and self.zero_stage < 3:
            raise ConfigError(
                f"parameters can't be offloaded at ZeRO stage {self.zero_stage}", remedy="set the stage to 3"
            )
        if (self.virtual_stages > 1) != (self.schedule == "interleaved"):
            raise ConfigError(
                f"the schedule {self.schedule} has no use for {self.virtual_stages} virtual stages",
                remedy="set the schedule to interleaved with two or more virtual stages, or leave both out",
            )
        factor: object = self.expert_capacity_factor
        is_number = isinstance(factor, int | float) and not isinstance(factor, bool)
        if factor is not None and not (is_number and 0 < factor < _LARGEST):  # type: ignore[operator]
            raise ConfigError(
                f"the expert capacity factor can't be {str(factor)[:40]}",
                remedy="give a finite number above 0, or none",
            )

    @property
    def element_bytes(self) -> int:
        """Bytes of one parameter, activation or gradient in the model's dtype."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def accumulation_dtype(self) -> Dtype:
        """What gradients are accumulated in; DeepSpeed leaves what is narrower than the model's dtype in that."""
        accumulated = self.grad_accum_dtype or self.dtype
        return self.dtype if ELEMENT_BYTES[accumulated] < self.element_bytes else accumulated

    @property
    def overlaps_communication(self) -> bool:
        """`overlap_comm` as DeepSpeed resolves it: on at stage 3 unless switched off, else off unless switched on."""
        return self.zero_stage == 3 if self.overlap_comm is None else self.overlap_comm


def sent_dtype(layout: ParallelLayout, training: TrainingSetup) -> Dtype:
    """What gradients are reduced in: the `communication_dtype`, else the model's dtype, under Ulysses float32.

    DeepSpeed 0.19.8, runtime/engine.py:1719-1731; with sequence parallel ranks `seq_parallel_communication_data_type`
    takes the place of `communication_data_type` (runtime/engine.py:2182), and is float32 (runtime/constants.py:236).
    """
    return training.communication_dtype or ("fp32" if layout.sequence_parallel_size > 1 else training.dtype)


_MAY_BE_NONE = ("grad_accum_dtype", "communication_dtype")
_CHOICES: dict[str, tuple[str, ...]] = {
    "dtype": get_args(Dtype),
    "grad_accum_dtype": get_args(Dtype),
    "communication_dtype": get_args(Dtype),
    "optimizer": OPTIMIZERS,
    "recompute": get_args(Recompute),
    "sequence_norm_gradients": ("each_micro_batch", "deferred"),
    "schedule": get_args(Schedule),
    "offload_optimizer": get_args(Offload),
    "offload_parameters": get_args(Offload),
}
_SIZES = tuple(field.name for field in fields(TrainingSetup) if field.type == "int")
_LARGEST = 10**15
