"""What one rank of a pipeline stage holds and runs: the numbers that its communication follows from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ds_accum.batch import ParallelLayout
from ds_accum.batch.wording import require_integer
from ds_accum.errors import UsageError
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.tensors import ParameterTensor, embedding_tensors, head_tensors, layer_tensors

__all__ = ["RankShare", "rank_share"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankShare:
    """One rank's part of a model, in elements before ZeRO shards them; `parameters` are those that are no experts'.

    `tied_parameters` are those of a word embedding that the first and the last of several stages both hold, which
    `parameters` count.
    """

    pipeline_stage: int
    num_layers: int
    num_expert_layers: int
    parameters: int
    expert_parameters: int
    tied_parameters: int = 0


def rank_share(shape: ModelShape, layout: ParallelLayout, pipeline_stage: int) -> RankShare:
    """The share of a rank of `pipeline_stage`, from 0.

    Layers go to the stages in order, evenly; where they don't divide, the first stages have one more. The embedding is
    in the first stage, the output in the last. Raises UsageError if there is no such stage.
    """
    stages = layout.pipeline_parallel_size
    require_integer(pipeline_stage, name="pipeline stage", minimum=0, error=UsageError)
    if pipeline_stage >= stages:
        raise UsageError(
            f"there is no pipeline stage {pipeline_stage} among {stages}, counted from 0",
            remedy=f"give one from 0 to {stages - 1}",
        )
    few, more = divmod(shape.num_layers, stages)
    first = pipeline_stage * few + min(pipeline_stage, more)
    layers = range(first, first + few + (pipeline_stage < more))
    with_experts = sum(shape.is_expert_layer(layer) for layer in layers)
    dense, experts = 0, 0
    for has_experts, count in ((False, len(layers) - with_experts), (True, with_experts)):
        if count:
            of_dense, of_experts = _elements(layer_tensors(shape, has_experts=has_experts), layout)
            dense, experts = dense + count * of_dense, experts + count * of_experts
    embedding, tied = _elements(embedding_tensors(shape), layout)[0], 0
    is_last = pipeline_stage == stages - 1
    if pipeline_stage == 0:
        dense += embedding
    if is_last:
        dense += _elements(head_tensors(shape), layout)[0]
    if shape.tied_embeddings and stages > 1 and (pipeline_stage == 0 or is_last):
        tied = _elements(embedding_tensors(shape)[:1], layout)[0]
        dense += tied if is_last else 0
    return RankShare(
        pipeline_stage=pipeline_stage,
        num_layers=len(layers),
        num_expert_layers=with_experts,
        parameters=dense,
        expert_parameters=experts,
        tied_parameters=tied,
    )


def _elements(tensors: Iterable[ParameterTensor], layout: ParallelLayout) -> tuple[int, int]:
    """Elements of one rank: those that are no experts', and those of its experts."""
    dense, experts = 0, 0
    for tensor in tensors:
        if tensor.is_expert:
            of_rank = -(-tensor.count // layout.expert_parallel_size)
            experts += of_rank * tensor.elements_per_rank(layout.expert_tensor_parallel_size)
        else:
            dense += tensor.count * tensor.elements_per_rank(layout.tensor_parallel_size)
    return dense, experts
