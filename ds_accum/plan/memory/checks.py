"""Whether a model can be cut as a layout says: each refusal with its equation."""

from __future__ import annotations

from ds_accum.batch import ParallelLayout
from ds_accum.errors import LayoutError
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.training import TrainingSetup

__all__ = ["require_legal"]


def require_legal(shape: ModelShape, layout: ParallelLayout, training: TrainingSetup) -> None:
    """Raises LayoutError where a division leaves a remainder, or DeepSpeed refuses a combination."""
    _require_multiple(
        f"{shape.num_attention_heads} attention heads", shape.num_attention_heads, layout.tensor_parallel_size, "tensor"
    )
    experts = shape.experts
    if experts is None:
        if layout.expert_parallel_size > 1 or layout.expert_tensor_parallel_size > 1:
            raise LayoutError(f"{shape.name} has no experts to spread", remedy="set expert parallel to 1")
    else:
        _require_multiple(f"{experts.num_experts} experts", experts.num_experts, layout.expert_parallel_size, "expert")
    split = layout.context_parallel_size * layout.sequence_parallel_size
    if training.megatron_sequence_parallel:
        split *= layout.tensor_parallel_size
    _require_multiple(
        f"sequence length {training.sequence_length}", training.sequence_length, split, "the sequence's split over"
    )
    if layout.pipeline_parallel_size > 1 and training.zero_stage > 1:
        raise LayoutError(
            f"a pipeline of {layout.pipeline_parallel_size} stages refuses ZeRO stage {training.zero_stage}"
            " (DeepSpeed 0.19.8, runtime/pipe/engine.py)",
            remedy="set the ZeRO stage to 1 or less, or pipeline parallel to 1",
        )
    if training.virtual_stages > 1:
        if layout.pipeline_parallel_size == 1:
            raise LayoutError("virtual stages need a pipeline", remedy="set pipeline parallel to 2 or more")
        _require_multiple(
            f"interleaving {training.gradient_accumulation_steps} micro-batches",
            training.gradient_accumulation_steps,
            layout.pipeline_parallel_size,
            "pipeline",
        )


def _require_multiple(said: str, number: int, divisor: int, name: str) -> None:
    if number % divisor:
        below, above = number // divisor * divisor, -(-number // divisor) * divisor
        legal = " or ".join(str(value) for value in (below, above) if value)
        raise LayoutError(
            f"{said} can't be cut in {name} {divisor} (remainder {number % divisor})",
            remedy=f"set {name} to a divisor of {number}, or make it {legal}",
        )
