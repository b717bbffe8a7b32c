"""Everything that one rank sends in an optimizer step, for a model, a layout and a way of training.

    step_communication(shape, layout, training)  ->  StepCommunication(transfers=(Transfer(name="gradients", ...), ...))

The rank is one of the pipeline stage that sends most, unless a stage is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ds_accum.batch import ParallelLayout
from ds_accum.batch.divisibility import nearest_divisors
from ds_accum.batch.wording import show_values
from ds_accum.errors import LayoutError
from ds_accum.plan.communication.layers import (
    context_parallel_transfers,
    expert_parallel_transfers,
    pipeline_parallel_transfers,
    sequence_parallel_transfers,
    tensor_parallel_transfers,
)
from ds_accum.plan.communication.share import RankShare, rank_share
from ds_accum.plan.communication.transfer import Group, Transfer, passed_bytes, total_sent_bytes
from ds_accum.plan.communication.zero import gathers_of_a_micro_batch, zero_transfers
from ds_accum.plan.memory.optimizer_state import uses_bf16_optimizer
from ds_accum.plan.memory.stages import Stage, stages_of
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.training import ELEMENT_BYTES, TrainingSetup, sent_dtype

__all__ = ["StepCommunication", "replica_size", "step_communication"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCommunication:
    """What one rank of `pipeline_stage` passes to collectives and sends in one optimizer step."""

    pipeline_stage: int
    transfers: tuple[Transfer, ...]

    @property
    def passed_bytes(self) -> int:
        """Bytes of the tensors that a rank passes in."""
        return passed_bytes(self.transfers)

    @property
    def sent_bytes(self) -> int:
        """Bytes that leave a rank."""
        return total_sent_bytes(self.transfers)

    def sent_bytes_of(self, *groups: Group) -> int:
        """Those of some groups alone: `communication.sent_bytes_of("data", "expert data")` is ZeRO's."""
        return total_sent_bytes(transfer for transfer in self.transfers if transfer.group in groups)


def replica_size(layout: ParallelLayout) -> int:
    """Ranks that hold the same parameters, over which gradients are reduced and ZeRO shards.

    They are the data, context and sequence parallel ranks together: `seq_data_parallel_group` of DeepSpeed 0.19.8
    (runtime/engine.py:2164), the data parallel group with context parallel of Megatron.
    """
    return layout.data_parallel_size * layout.context_parallel_size * layout.sequence_parallel_size


def step_communication(
    shape: ModelShape,
    layout: ParallelLayout,
    training: TrainingSetup,
    *,
    pipeline_stage: int | None = None,
    coalesced: bool = False,
) -> StepCommunication:
    """The transfers of one rank; `coalesced`: ZeRO-2 and 3 reduce at the accumulation boundary alone.

    Raises LayoutError where context and sequence parallel do not divide the sequence.
    """

    def of_stage(stage: int) -> StepCommunication:
        share = rank_share(
            shape,
            layout,
            stage,
            layers_per_stage=training.layers_per_stage,
            virtual_stages=training.virtual_stages,
        )
        of_parameters = _of_parameters(share, layout, training, gradient_bytes=gradient_bytes, coalesced=coalesced)
        transfers = (*of_parameters, *_of_layers(shape, share, layout, training))
        return StepCommunication(pipeline_stage=stage, transfers=transfers)

    gradient_bytes = ELEMENT_BYTES[sent_dtype(layout, training)]
    if pipeline_stage is not None:
        return of_stage(pipeline_stage)
    different: dict[Stage, int] = {}
    stages = stages_of(shape, layout.pipeline_parallel_size, training.layers_per_stage, training.virtual_stages)
    for index, stage in enumerate(stages):
        different.setdefault(stage, index)
    return max(map(of_stage, different.values()), key=lambda candidate: candidate.sent_bytes)


def _of_parameters(
    share: RankShare, layout: ParallelLayout, training: TrainingSetup, *, gradient_bytes: int, coalesced: bool
) -> Iterator[Transfer]:
    """ZeRO's, once for the experts and once for the rest, and the sum of the gradients of tied embeddings."""
    groups: tuple[tuple[Group, int, int], ...] = (
        ("data", share.parameters, replica_size(layout)),
        ("expert data", share.expert_parameters, layout.expert_data_parallel_size),
    )
    is_bf16_optimizer = uses_bf16_optimizer(training, has_pipeline=layout.pipeline_parallel_size > 1)
    for group, parameters, ranks in groups:
        yield from zero_transfers(
            training.zero_stage,
            parameters=parameters,
            ranks=ranks,
            gradient_accumulation_steps=training.gradient_accumulation_steps,
            parameter_bytes=training.element_bytes,
            gradient_bytes=gradient_bytes,
            coalesced=coalesced,
            gathers=gathers_of_a_micro_batch(
                share.parameters + share.expert_parameters, max_live_parameters=training.max_live_parameters
            ),
            cuts_state=is_bf16_optimizer,
            group=group,
        )
    if share.tied_parameters:
        # BF16_Optimizer sums what it has accumulated, all else the parameter's own gradient; none of it is cast.
        tied_dtype = training.accumulation_dtype if is_bf16_optimizer else training.dtype
        yield Transfer(
            name="tied embedding gradients",
            kind="all-reduce",
            group="pipeline",
            ranks=2,
            times=1,
            bytes_each=share.tied_parameters * ELEMENT_BYTES[tied_dtype],
            formula="V h e" if tied_dtype == training.dtype else f"V h {ELEMENT_BYTES[tied_dtype]}",
            source="DeepSpeed 0.19.8, runtime/pipe/engine.py:281-285, _exec_reduce_tied_grads",
        )


def _of_layers(
    shape: ModelShape, share: RankShare, layout: ParallelLayout, training: TrainingSetup
) -> Iterator[Transfer]:
    """What attention, MLP and the pipeline send in every micro-batch."""
    tensor_ranks, stages = layout.tensor_parallel_size, layout.pipeline_parallel_size
    tokens = training.micro_batch_size * _tokens_of_a_sequence(layout, training.sequence_length)
    value_bytes = training.element_bytes
    accumulation = training.gradient_accumulation_steps
    forwards = 2 if training.recompute == "full" else 1
    is_split = training.megatron_sequence_parallel and tensor_ranks > 1
    query, key, value = _attention_values(shape)
    yield from tensor_parallel_transfers(
        ranks=tensor_ranks,
        num_layers=share.num_layers,
        tokens=tokens,
        hidden_size=shape.hidden_size,
        value_bytes=value_bytes,
        gradient_accumulation_steps=accumulation,
        forwards=forwards,
        megatron_sequence_parallel=is_split,
        is_first_stage=share.pipeline_stage == 0,
        is_last_stage=share.pipeline_stage == stages - 1,
    )
    if is_split:
        deferred = training.sequence_norm_gradients == "deferred"
        yield Transfer(
            name="gradients of norms",
            kind="all-reduce",
            group="tensor",
            ranks=tensor_ranks,
            times=1 if deferred else accumulation,
            bytes_each=share.whole_parameters * value_bytes,
            formula="W g" if deferred else "A x W g",
            source="Korthikanti et al. 2022, arXiv 2205.05198, section 4.2: each rank has a part of their tokens",
        )
    # Queries and output have the same number of heads; a sequence-parallel rank without a key-value head of
    # its own gets a copy of one.
    heads = -(-shape.num_attention_heads // tensor_ranks)
    pairs = max(-(-shape.num_key_value_heads // tensor_ranks), layout.sequence_parallel_size)
    yield from sequence_parallel_transfers(
        ranks=layout.sequence_parallel_size,
        num_layers=share.num_layers,
        tokens=tokens,
        values_per_token=heads * (query + value) + pairs * (key + value),
        value_bytes=value_bytes,
        gradient_accumulation_steps=accumulation,
        forwards=forwards,
    )
    yield from context_parallel_transfers(
        ranks=layout.context_parallel_size,
        num_layers=share.num_layers,
        # After Ulysses a rank has all tokens of its context-parallel block, and a part of the heads.
        tokens=tokens,
        values_per_token=pairs * (key + value),
        value_bytes=value_bytes,
        gradient_accumulation_steps=accumulation,
        forwards=forwards,
    )
    if shape.experts is not None:
        # Where experts are not cut themselves, each tensor-parallel rank sends its own part of the tokens.
        of_rank = tokens if layout.expert_tensor_parallel_size > 1 else -(-tokens // tensor_ranks)
        yield from expert_parallel_transfers(
            ranks=layout.expert_parallel_size,
            num_layers=share.num_expert_layers,
            tokens=of_rank,
            experts_per_token=shape.experts.experts_per_token,
            hidden_size=shape.hidden_size,
            value_bytes=value_bytes,
            gradient_accumulation_steps=accumulation,
            forwards=forwards,
        )
    yield from pipeline_parallel_transfers(
        stages=stages,
        stage=share.pipeline_stage,
        tokens=tokens,
        hidden_size=shape.hidden_size,
        value_bytes=value_bytes,
        gradient_accumulation_steps=accumulation,
        virtual_stages=training.virtual_stages,
        split=tensor_ranks if is_split else 1,
    )


def _attention_values(shape: ModelShape) -> tuple[int, int, int]:
    """Values of one head's query, key and value."""
    latent = shape.latent_attention
    if latent is None:
        return shape.head_size, shape.head_size, shape.head_size
    return latent.query_head_size, latent.query_head_size, latent.value_head_size


def _tokens_of_a_sequence(layout: ParallelLayout, sequence_length: int) -> int:
    """Token positions of one sequence on one rank."""
    parts = layout.context_parallel_size * layout.sequence_parallel_size
    if sequence_length % parts:
        near = nearest_divisors(sequence_length, parts)
        raise LayoutError(
            f"sequence length {sequence_length} is not a multiple of context {layout.context_parallel_size} x sequence"
            f" {layout.sequence_parallel_size} = {parts} (remainder {sequence_length % parts})",
            remedy=f"make context x sequence parallel {show_values(near.values)}, or pad the sequence",
        )
    return sequence_length // parts
