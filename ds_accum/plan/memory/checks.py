"""Whether a model can be cut as a layout says: each refusal with its equation."""

from __future__ import annotations

from math import prod

from ds_accum.batch import ParallelLayout
from ds_accum.batch.divisibility import nearest_divisors, nearest_multiples
from ds_accum.batch.wording import show, show_values
from ds_accum.errors import LayoutError
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.training import TrainingSetup

__all__ = ["require_legal"]


def require_legal(shape: ModelShape, layout: ParallelLayout, training: TrainingSetup) -> None:
    """Raises LayoutError where a division leaves a remainder, or DeepSpeed refuses a combination."""
    _require_divisor(
        f"{shape.num_attention_heads} attention heads", shape.num_attention_heads, layout.tensor_parallel_size, "tensor"
    )
    experts = shape.experts
    if experts is None:
        if layout.expert_parallel_size > 1 or layout.expert_tensor_parallel_size > 1:
            raise LayoutError(f"{shape.name} has no experts to spread", remedy="set expert parallel to 1")
    else:
        _require_divisor(f"{experts.num_experts} experts", experts.num_experts, layout.expert_parallel_size, "expert")
    _require_even_sequence(layout, training)
    if layout.pipeline_parallel_size > 1 and training.zero_stage > 1:
        raise LayoutError(
            f"a pipeline of {layout.pipeline_parallel_size} stages refuses ZeRO stage {training.zero_stage}"
            " (DeepSpeed 0.19.8, runtime/pipe/engine.py)",
            remedy="set the ZeRO stage to 1 or less, or pipeline parallel to 1",
        )
    if training.virtual_stages > 1:
        if layout.pipeline_parallel_size == 1:
            raise LayoutError("virtual stages need a pipeline", remedy="set pipeline parallel to 2 or more")
        steps, stages = training.gradient_accumulation_steps, layout.pipeline_parallel_size
        if steps % stages:
            raise LayoutError(
                f"{show(steps)} micro-batches can't be interleaved over {stages} pipeline stages"
                f" (remainder {steps % stages})",
                remedy=f"set the accumulation to {show_values(nearest_multiples(steps, stages).values)}",
            )


def _require_even_sequence(layout: ParallelLayout, training: TrainingSetup) -> None:
    degrees = {"context": layout.context_parallel_size, "sequence": layout.sequence_parallel_size}
    if training.megatron_sequence_parallel:
        degrees["tensor"] = layout.tensor_parallel_size
    length, split = training.sequence_length, prod(degrees.values())
    if length % split == 0:
        return
    factors = " x ".join(f"{name} {size}" for name, size in degrees.items() if size > 1)
    said = f"{factors} = {split}" if factors.count(" x ") else factors
    remedy = f"make the sequence length {show_values(nearest_multiples(length, split).values)}"
    if length % (layout.context_parallel_size * layout.sequence_parallel_size) == 0:
        remedy += ", or leave Megatron's sequence parallel off"
    raise LayoutError(
        f"sequence length {show(length)} can't be cut in {said} (remainder {show(length % split)})", remedy=remedy
    )


def _require_divisor(said: str, number: int, divisor: int, name: str) -> None:
    if number % divisor:
        near = nearest_divisors(number, divisor)
        raise LayoutError(
            f"{said} can't be cut in {name} {show(divisor)} (remainder {show(number % divisor)})",
            remedy=f"set {name} parallel to {show_values(near.values)}"
            if near.values
            else f"leave {name} parallel out",
        )
