"""What one rank of a pipeline stage holds and runs: the numbers that its communication follows from."""

from __future__ import annotations

from dataclasses import dataclass

from ds_accum.batch import ParallelLayout
from ds_accum.batch.wording import require_integer, show
from ds_accum.errors import UsageError
from ds_accum.plan.memory.holdings import holdings_of
from ds_accum.plan.memory.stages import stages_of
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.tensors import embedding_tensors

__all__ = ["RankShare", "rank_share"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankShare:
    """One rank's part of a model, in elements before ZeRO shards them; `parameters` are those that are no experts'.

    `tied_parameters` are those of a word embedding that the first and the last of several stages both hold, which
    `parameters` count. `whole_parameters` are those of `parameters` that every tensor parallel rank holds, the
    embedding's left out.
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
    virtual_stages: int = 1,
) -> RankShare:
    """The share of a rank of `pipeline_stage`, from 0; the layers are those that the memory estimate gives the stage.

    Raises UsageError if there is no such stage, LayoutError if the layers can't be dealt so.
    """
    stages = layout.pipeline_parallel_size
    require_integer(pipeline_stage, name="pipeline stage", minimum=0, error=UsageError)
    if pipeline_stage >= stages:
        raise UsageError(
            f"there is no pipeline stage {show(pipeline_stage)} among {show(stages)}, counted from 0",
            remedy=f"give one from 0 to {show(stages - 1)}",
        )
    stage = stages_of(shape, stages, layers_per_stage, virtual_stages)[pipeline_stage]
    shared, *experts = holdings_of(shape, layout, stage).kinds
    tied = 0
    if shape.tied_embeddings and stages > 1 and (stage.has_embedding or stage.has_head):
        tied = embedding_tensors(shape)[0].elements_per_rank(layout.tensor_parallel_size)
    return RankShare(
        pipeline_stage=pipeline_stage,
        num_layers=len(stage.layers),
        num_expert_layers=sum(stage.layers),
        parameters=shared.elements,
        expert_parameters=sum(held.elements for held in experts),
        tied_parameters=tied,
        whole_parameters=shared.replicated,
    )
