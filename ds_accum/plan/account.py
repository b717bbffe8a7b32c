"""StepAccount: the whole account of one optimizer step, from samples to the bytes that each ZeRO stage sends for it.

    global batch    = micro batch x data parallel x accumulation       tokens = global batch x sequence length
    micro-batches of a pipeline stage = accumulation: they fill the pipeline and multiply nothing
    synchronizations = 0 on one replica, 1 where gradients are reduced at the boundary, accumulation where in every
                       micro-batch
    parameter gathers = accumulation or twice that in ZeRO-3, 1 in ZeRO-1 and 2

A replica is every rank that holds the same parameters: data, context and sequence parallel ranks reduce together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ds_accum.batch import BatchLedger, ParallelLayout
from ds_accum.batch.wording import require_integer, show
from ds_accum.errors import UsageError
from ds_accum.plan.communication import (
    MAX_LIVE_PARAMETERS,
    Transfer,
    gathers_of_a_micro_batch,
    passed_bytes,
    rank_share,
    replica_size,
    step_communication,
    total_sent_bytes,
    zero_exchanges,
    zero_transfers,
)
from ds_accum.plan.memory.checks import require_legal
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.training import ELEMENT_BYTES, Dtype, TrainingSetup

__all__ = ["ModelSize", "StageAccount", "StepAccount", "account_step"]

ZERO_STAGES = (0, 1, 2, 3)

_LARGEST = 10**12
"""No batch, sequence or world is near it; the numbers in a report stay readable."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSize:
    """What is known of a model: its shape, or its number of parameters alone; and how a value is sent.

    Without a shape the parameters are taken to be even over tensor x pipeline parallel ranks. `gradient_dtype` None is
    what DeepSpeed sends: that of the parameters, with sequence parallel float32 (0.19.8,
    `seq_parallel_communication_data_type`). `max_live_parameters` says up to how many elements ZeRO-3 keeps gathered
    from the forward to the backward.
    """

    parameters: int
    shape: ModelShape | None = None
    dtype: Dtype = "bf16"
    gradient_dtype: Dtype | None = None
    max_live_parameters: int = MAX_LIVE_PARAMETERS

    def __post_init__(self) -> None:
        require_integer(self.parameters, name="parameters", error=UsageError)
        require_integer(self.max_live_parameters, name="max live parameters", minimum=0, error=UsageError)
        if self.shape is not None and self.shape.parameters != self.parameters:
            raise UsageError(
                f"{self.shape.name} has {show(self.shape.parameters)} parameters, not {show(self.parameters)}",
                remedy="give the shape or the number of parameters",
            )

    @property
    def parameter_bytes(self) -> int:
        """Bytes of one parameter as it is gathered."""
        return ELEMENT_BYTES[self.dtype]

    def gradient_bytes(self, layout: ParallelLayout) -> int:
        """Bytes of one gradient as it is reduced."""
        default: Dtype = "fp32" if layout.sequence_parallel_size > 1 else self.dtype
        return ELEMENT_BYTES[self.gradient_dtype or default]

    @classmethod
    def of(
        cls,
        shape: ModelShape,
        *,
        dtype: Dtype = "bf16",
        gradient_dtype: Dtype | None = None,
        max_live_parameters: int = MAX_LIVE_PARAMETERS,
    ) -> ModelSize:
        """That of a shape."""
        return cls(
            parameters=shape.parameters,
            shape=shape,
            dtype=dtype,
            gradient_dtype=gradient_dtype,
            max_live_parameters=max_live_parameters,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class StageAccount:
    """What a ZeRO stage does for one optimizer step.

    `transfers` are those of gradients and parameters, on one rank; none where the model is not known.
    """

    zero_stage: int
    reduces_at_boundary: bool
    synchronizations: int
    parameter_gathers: int
    transfers: tuple[Transfer, ...] = ()

    @property
    def passed_bytes(self) -> int:
        """Bytes that a rank passes to collectives."""
        return passed_bytes(self.transfers)

    @property
    def sent_bytes(self) -> int:
        """Bytes that leave a rank."""
        return total_sent_bytes(self.transfers)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepAccount:
    """One optimizer step. `layer_transfers` are what the parallel degrees exchange for it, whatever the ZeRO stage."""

    ledger: BatchLedger
    layout: ParallelLayout
    stages: tuple[StageAccount, ...]
    sequence_length: int | None = None
    model: ModelSize | None = None
    pipeline_stage: int = 0
    layer_transfers: tuple[Transfer, ...] = ()

    @property
    def tokens_per_step(self) -> int | None:
        """Token positions of all ranks, None without a sequence length."""
        length = self.sequence_length
        return None if length is None else self.ledger.tokens_per_step(sequence_length=length)

    @property
    def rank_parameters(self) -> tuple[int, int] | None:
        """Parameters of one rank before ZeRO shards them: those that are no experts', and those of its experts."""
        if self.model is None:
            return None
        if self.model.shape is None:
            return even_share(self.model, self.layout), 0
        share = rank_share(self.model.shape, self.layout, self.pipeline_stage)
        return share.parameters, share.expert_parameters

    @property
    def micro_batches_per_pipeline_stage(self) -> int:
        """The micro-batches that go through every pipeline stage in one optimizer step: the accumulation steps."""
        return self.ledger.gradient_accumulation_steps


def even_share(model: ModelSize, layout: ParallelLayout) -> int:
    """Parameters of one rank where nothing is known but their number: an even part of tensor x pipeline, rounded up."""
    return -(-model.parameters // (layout.tensor_parallel_size * layout.pipeline_parallel_size))


def account_step(
    ledger: BatchLedger,
    layout: ParallelLayout,
    *,
    sequence_length: int | None = None,
    model: ModelSize | None = None,
    coalesced: bool = False,
) -> StepAccount:
    """The account under each ZeRO stage; `coalesced`: ZeRO-2 and 3 reduce at the accumulation boundary alone.

    Raises UsageError where the ledger's data parallel size is not the layout's, LayoutError where the layout does not
    fit the model.
    """
    if ledger.data_parallel_size != layout.data_parallel_size:
        raise UsageError(
            f"the batch is cut for data parallel {show(ledger.data_parallel_size)}, and {layout.describe()}",
            remedy="take the data parallel size from the layout",
        )
    if sequence_length is not None:
        require_integer(sequence_length, name="sequence length", error=UsageError)
    for name, size in (("global batch", ledger.global_batch_size), ("sequence length", sequence_length or 1)):
        if size > _LARGEST:
            raise UsageError(f"{name} {show(size)} is beyond 10^12", remedy=f"give the real {name}")
    if layout.world_size > _LARGEST:
        raise UsageError(f"world {show(layout.world_size)} is beyond 10^12", remedy="give the real number of ranks")
    by_stage, layers, pipeline_stage = _transfers(ledger, layout, sequence_length, model, coalesced=coalesced)
    stages = tuple(
        _stage(stage, ledger, layout, transfers, coalesced=coalesced)
        for stage, transfers in zip(ZERO_STAGES, by_stage, strict=True)
    )
    return StepAccount(
        ledger=ledger,
        layout=layout,
        stages=stages,
        sequence_length=sequence_length,
        model=model,
        pipeline_stage=pipeline_stage,
        layer_transfers=layers,
    )


def _stage(
    zero_stage: int,
    ledger: BatchLedger,
    layout: ParallelLayout,
    transfers: tuple[Transfer, ...],
    *,
    coalesced: bool,
) -> StageAccount:
    ranks = replica_size(layout)
    exchanges = zero_exchanges(zero_stage, tensors=(ranks,), ranks=ranks, coalesced=coalesced)
    at_boundary = not exchanges.reduction.every_micro_batch
    # Counted over all ranks that reduce together, which are more than data parallel under context or sequence parallel.
    of_replicas = replace(ledger, data_parallel_size=ranks)
    gathers = 0
    if ranks > 1 and exchanges.gathering is not None:
        gathers = exchanges.gathering.times(ledger.gradient_accumulation_steps)
    known = [transfer.times for transfer in transfers if transfer.name == "parameters"]
    return StageAccount(
        zero_stage=zero_stage,
        reduces_at_boundary=at_boundary,
        synchronizations=of_replicas.synchronizations_per_step(reduce_at_boundary=at_boundary),
        parameter_gathers=known[0] if known else gathers,
        transfers=transfers,
    )


def _transfers(
    ledger: BatchLedger,
    layout: ParallelLayout,
    sequence_length: int | None,
    model: ModelSize | None,
    *,
    coalesced: bool,
) -> tuple[list[tuple[Transfer, ...]], tuple[Transfer, ...], int]:
    """Those of each ZeRO stage, those of the layers, and the pipeline stage whose rank they are of."""
    if model is None:
        return [()] * len(ZERO_STAGES), (), 0
    if model.shape is None:
        of_rank = even_share(model, layout)
        every_stage = [
            zero_transfers(
                stage,
                parameters=of_rank,
                ranks=replica_size(layout),
                gradient_accumulation_steps=ledger.gradient_accumulation_steps,
                parameter_bytes=model.parameter_bytes,
                gradient_bytes=model.gradient_bytes(layout),
                coalesced=coalesced,
                gathers=gathers_of_a_micro_batch(of_rank, max_live_parameters=model.max_live_parameters),
            )
            for stage in ZERO_STAGES
        ]
        return every_stage, (), 0
    # What ZeRO exchanges does not depend on the length: without one, any that the ranks can divide will do.
    length = sequence_length or layout.context_parallel_size * layout.sequence_parallel_size
    trainings = [
        TrainingSetup(
            zero_stage=stage,
            micro_batch_size=ledger.micro_batch_size,
            gradient_accumulation_steps=ledger.gradient_accumulation_steps,
            sequence_length=length,
            dtype=model.dtype,
            communication_dtype=model.gradient_dtype,
            max_live_parameters=model.max_live_parameters,
        )
        for stage in ZERO_STAGES
    ]
    busiest = step_communication(model.shape, layout, trainings[1], coalesced=coalesced)
    require_legal(model.shape, layout, trainings[0])
    found = [
        step_communication(
            model.shape,
            layout,
            training,
            pipeline_stage=busiest.pipeline_stage,
            coalesced=coalesced,
        ).transfers
        for training in trainings
    ]
    by_stage = [tuple(item for item in transfers if item.group in ("data", "expert data")) for transfers in found]
    layers = () if sequence_length is None else tuple(item for item in found[0] if item not in by_stage[0])
    return by_stage, layers, busiest.pipeline_stage
