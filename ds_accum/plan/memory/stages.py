"""Which layers a pipeline stage has, and how many of its forwards wait for their backward.

    1F1B          min(micro-batches, stages - stage)        Narayanan et al. 2021, arXiv 2104.04473, section 2.2
    GPipe         micro-batches                             the same
    interleaved   min(v x micro-batches, 2 (stages - stage - 1) + (v - 1) stages + 1) of one of the v model chunks

The last is Megatron-LM's number of warm-up forwards and one more (megatron/core/pipeline_parallel/schedules.py); on the
first stage it is v p + p - 1 of v p, Korthikanti et al.'s 1 + (p - 1)/(p v) (arXiv 2205.05198, section 4.2.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ds_accum.batch import ParallelLayout
from ds_accum.errors import LayoutError
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.training import TrainingSetup

__all__ = ["Stage", "forwards_in_flight", "stages_of"]


@dataclass(frozen=True, slots=True)
class Stage:
    """A pipeline stage: for each of its layers whether it has experts, and what ends of the model it holds."""

    layers: tuple[bool, ...]
    has_embedding: bool
    has_head: bool


@lru_cache(maxsize=4096)
def stages_of(
    shape: ModelShape, stages: int, per_stage: tuple[int, ...] | None, virtual_stages: int
) -> tuple[Stage, ...]:
    """The stages in order. Layers that can't be spread evenly go to the stages behind the first; raises LayoutError."""
    counts = per_stage or _spread(shape.num_layers, stages, virtual_stages)
    if len(counts) != stages or sum(counts) != shape.num_layers or min(counts) < 1:
        raise LayoutError(
            f"layers per stage {', '.join(map(str, counts[:16]))} are not {shape.num_layers} layers on {stages} stages",
            remedy=f"give {stages} numbers of at least 1 that add up to {shape.num_layers}",
        )
    is_expert = [shape.is_expert_layer(layer) for layer in range(shape.num_layers)]
    found, first = [], 0
    for index, count in enumerate(counts):
        found.append(
            Stage(
                layers=_chunks(is_expert, index, stages, virtual_stages)
                if virtual_stages > 1
                else tuple(is_expert[first : first + count]),
                has_embedding=index == 0,
                has_head=index == stages - 1,
            )
        )
        first += count
    return tuple(found)


def forwards_in_flight(layout: ParallelLayout, training: TrainingSetup, stage: int) -> int:
    """The most forwards of stage `stage`, from 0, whose backward is still to come."""
    stages, micro_batches = layout.pipeline_parallel_size, training.gradient_accumulation_steps
    if stages == 1:
        return 1
    if training.schedule == "gpipe":
        return micro_batches
    if training.schedule == "1f1b":
        return min(micro_batches, stages - stage)
    chunks = training.virtual_stages
    return min(chunks * micro_batches, 2 * (stages - stage - 1) + (chunks - 1) * stages + 1)


def _spread(layers: int, stages: int, virtual_stages: int) -> tuple[int, ...]:
    if layers < stages * virtual_stages:
        raise LayoutError(
            f"{layers} layers can't fill {stages * virtual_stages} pipeline stages",
            remedy=f"set pipeline parallel x virtual stages to {layers} or less",
        )
    if virtual_stages > 1 and layers % (stages * virtual_stages):
        raise LayoutError(
            f"{layers} layers are no multiple of {stages} stages x {virtual_stages} virtual stages"
            f" = {stages * virtual_stages} (remainder {layers % (stages * virtual_stages)})",
            remedy="interleaving needs equal chunks: change the stages or the virtual stages",
        )
    counts = [layers // stages] * stages
    # The first stage has most micro-batches in flight and the embedding, the last one the logits: they get theirs last.
    for stage in [*range(1, stages - 1), stages - 1, 0][: layers % stages]:
        counts[stage] += 1
    return tuple(counts)


def _chunks(is_expert: list[bool], stage: int, stages: int, virtual_stages: int) -> tuple[bool, ...]:
    """Of the model's equal chunks in order, a stage has every `stages`th."""
    size = len(is_expert) // (stages * virtual_stages)
    starts = [(chunk * stages + stage) * size for chunk in range(virtual_stages)]
    return tuple(has_experts for start in starts for has_experts in is_expert[start : start + size])
