"""What one rank of a pipeline stage holds and runs: the numbers that its communication follows from."""

from __future__ import annotations

from dataclasses import dataclass

from ds_accum.batch import ParallelLayout
from ds_accum.batch.wording import require_integer, show
from ds_accum.errors import LayoutError, UsageError
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.tensors import ParameterTensor, embedding_tensors, head_tensors, layer_tensors

__all__ = ["RankShare", "rank_share"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankShare:
    """One rank's part of a model, in elements before ZeRO shards them; `parameters` are those that are no experts'.

    `tied_parameters` are those of a word embedding that the first and the last of several stages both hold, which
    `parameters` count. `whole_parameters` are those of `parameters` that tensor parallel ranks don't cut.
    """

    pipeline_stage: int
    num_layers: int
    num_expert_layers: int
    parameters: int
    expert_parameters: int
    tied_parameters: int = 0
    whole_parameters: int = 0


def rank_share(
    shape: ModelShape,
    layout: ParallelLayout,
    pipeline_stage: int,
    *,
    layers_per_stage: tuple[int, ...] | None = None,
) -> RankShare:
    """The share of a rank of `pipeline_stage`, from 0.

    Layers go to the stages in order, evenly unless `layers_per_stage` says otherwise; where they don't divide, the
    first stages have one more. The embedding is in the first stage, the output in the last. Raises UsageError if there
    is no such stage, LayoutError if `layers_per_stage` are not those of the model and of the layout.
    """
    stages = layout.pipeline_parallel_size
    require_integer(pipeline_stage, name="pipeline stage", minimum=0, error=UsageError)
    if pipeline_stage >= stages:
        raise UsageError(
            f"there is no pipeline stage {show(pipeline_stage)} among {show(stages)}, counted from 0",
            remedy=f"give one from 0 to {show(stages - 1)}",
        )
    layers = _layers(shape.num_layers, stages, pipeline_stage, layers_per_stage)
    with_experts = sum(shape.is_expert_layer(layer) for layer in layers)
    is_first, is_last = pipeline_stage == 0, pipeline_stage == stages - 1
    held: list[tuple[ParameterTensor, int]] = []
    for has_experts, count in ((False, len(layers) - with_experts), (True, with_experts)):
        if count:
            held += [(tensor, count) for tensor in layer_tensors(shape, has_experts=has_experts)]
    if is_first:
        held += [(tensor, 1) for tensor in embedding_tensors(shape)]
    if is_last:
        held += [(tensor, 1) for tensor in head_tensors(shape)]
    tied = 0
    if shape.tied_embeddings and stages > 1 and (is_first or is_last):
        words = embedding_tensors(shape)[0]
        tied = _elements(words, layout)
        held += [(words, 1)] if is_last else []
    sizes = [(tensor, times * _elements(tensor, layout)) for tensor, times in held]
    return RankShare(
        pipeline_stage=pipeline_stage,
        num_layers=len(layers),
        num_expert_layers=with_experts,
        parameters=sum(size for tensor, size in sizes if not tensor.is_expert),
        expert_parameters=sum(size for tensor, size in sizes if tensor.is_expert),
        tied_parameters=tied,
        whole_parameters=sum(size for tensor, size in sizes if not (tensor.is_expert or tensor.is_split)),
    )


def _layers(num_layers: int, stages: int, stage: int, layers_per_stage: tuple[int, ...] | None) -> range:
    """The layers of one stage."""
    if layers_per_stage is None:
        few, more = divmod(num_layers, stages)
        first = stage * few + min(stage, more)
        return range(first, first + few + (stage < more))
    if len(layers_per_stage) != stages or sum(layers_per_stage) != num_layers:
        raise LayoutError(
            f"{len(layers_per_stage)} stages of {sum(layers_per_stage)} layers together are not pipeline"
            f" {show(stages)} of {num_layers} layers",
            remedy="give one number of layers for each stage, the model's layers together",
        )
    first = sum(layers_per_stage[:stage])
    return range(first, first + layers_per_stage[stage])


def _elements(tensor: ParameterTensor, layout: ParallelLayout) -> int:
    """Elements that one rank holds of all tensors of a kind."""
    if tensor.is_expert:
        of_rank = -(-tensor.count // layout.expert_parallel_size)
        return of_rank * tensor.elements_per_rank(layout.expert_tensor_parallel_size)
    return tensor.count * tensor.elements_per_rank(layout.tensor_parallel_size)
