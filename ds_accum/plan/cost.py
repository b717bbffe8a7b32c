"""Seconds of one optimizer step, by part: arithmetic, recompute, bubble, communication and the update.

The slowest pipeline stage sets the pace. With A micro-batches of b samples through p stages (1F1B),

    step   = A t + (p - 1) t + data parallel + update
    bubble = (p - 1) t, a share (p - 1) / (A + p - 1)           Narayanan et al. 2021, arXiv 2104.04473, section 2.2
    t      = compute + recompute + tensor + sequence and context + expert + pipeline + what ZeRO adds every micro-batch

    compute    arithmetic: b s F / ranks / (peak x share), F operations of the stage per token, forward and backward
               (`ModelShape.flops_per_token`), ranks = tensor x sequence x context
               memory: activations written and read in the forward, read, and their gradients read and written in the
               backward (5 b s a / ranks), weights read twice, gradients added up once, / (memory speed x share);
               a of a layer as in Korthikanti et al. 2022, arXiv 2205.05198, equation 1
    recompute  full: the forward of the layers once more, a third of it; selective: that of the attention core
    others     `ds_accum.plan.communication` counts the calls, `ds_accum.plan.links` times each
    update     optimizer: read and write parameter, moments and gradient / memory speed, of this rank's shard; on the
               host: gradients there and parameters back over its link, and DeepSpeed's CPU Adam

What hides behind what: ZeRO-3 gathers and reduces behind the micro-batch's arithmetic, ZeRO-2 reduces behind its
backward (with `overlap_comm`), ring attention's sends behind the arithmetic; each up to `overlapped_share`. The ring
comes first, evenly over the micro-batch, and ZeRO hides behind what it leaves. Everything else waits. All that is
assumed is in `CostAssumptions`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import ceil, isfinite
from typing import Literal

from ds_accum.batch import ParallelLayout
from ds_accum.errors import UsageError
from ds_accum.plan.communication import RankShare, Transfer, rank_share, replica_size, step_communication
from ds_accum.plan.hardware import Hardware
from ds_accum.plan.links import call_seconds
from ds_accum.plan.memory.optimizer_state import place_of_state, uses_bf16_optimizer
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.training import ELEMENT_BYTES, TrainingSetup, sent_dtype

__all__ = [
    "PARTS",
    "CostAssumptions",
    "StagePace",
    "StepTime",
    "paces_of",
    "step_time",
]

TimePart = Literal[
    "compute",
    "recompute",
    "bubble",
    "tensor_parallel",
    "sequence_parallel",
    "expert_parallel",
    "pipeline_transfers",
    "data_parallel",
    "update",
]
PARTS: tuple[TimePart, ...] = (
    "compute",
    "recompute",
    "bubble",
    "tensor_parallel",
    "sequence_parallel",
    "expert_parallel",
    "pipeline_transfers",
    "data_parallel",
    "update",
)

# Adam in mixed precision reads gradient, parameter and two moments in float32, and writes the latter three and the
# 16-bit parameter: 4 x 4 + 3 x 4 + 2 bytes a parameter (Rajbhandari et al. 2020, arXiv 1910.02054, section 3.1).
_UPDATE_BYTES = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class CostAssumptions:
    """What software gets out of the hardware. Raises UsageError for a share outside 0 to 1, or a speed of 0.

    `compute_share_of_peak`: of the dense peak, in matrix multiplication alone; `memory_share_of_peak` of the memory's
    speed; `link_share_of_peak` of a link's speed in a large collective. `overlapped_share`: of a communication that may
    hide behind arithmetic, as far as there is enough of it. `ports_of_a_ring`: network ports of a node that a
    collective drives at once; NCCL can drive them all, but the six ZeRO-3 runs of Narayanan et al. 2021, arXiv
    2104.04473, Table 2, ran at the speed of one. The defaults are fitted to that paper: they meet the ten throughputs
    of its Table 1 within a tenth, and those of ZeRO-3 within a quarter; on other GPUs they are assumed to be the same.
    `gathers_per_layer`: ZeRO-3 gathers module by module, four matrices a layer.
    `host_parameters_per_second`: CPU Adam on one node (Ren et al. 2021, arXiv 2101.06840, Table 4: 10 billion
    parameters in 2.6 s).
    """

    compute_share_of_peak: float = 0.69
    memory_share_of_peak: float = 0.8
    link_share_of_peak: float = 0.8
    overlapped_share: float = 0.8
    ports_of_a_ring: int = 1
    gathers_per_layer: int = 4
    host_parameters_per_second: float = 4e9

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            most = 1.0 if "share" in field.name else float("inf")
            if not (isfinite(value) and 0 < value <= most):
                limit = " and at most 1" if most == 1 else ""
                raise UsageError(
                    f"{field.name.replace('_', ' ')} must be above 0{limit}, not {value:g}",
                    remedy="leave it out for the default",
                )


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTime:
    """Seconds of one optimizer step on the slowest stage; the parts add up to `step_seconds`."""

    pipeline_stage: int
    compute_seconds: float
    recompute_seconds: float
    bubble_seconds: float
    tensor_parallel_seconds: float
    sequence_parallel_seconds: float
    expert_parallel_seconds: float
    pipeline_transfers_seconds: float
    data_parallel_seconds: float
    update_seconds: float

    @property
    def step_seconds(self) -> float:
        """All parts together."""
        return sum(self.part_seconds(part) for part in PARTS)

    def part_seconds(self, part: TimePart) -> float:
        """One part of `PARTS`."""
        seconds: float = getattr(self, f"{part}_seconds")
        return seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class StagePace:
    """What one micro-batch costs on one stage, as fixed + b x per sample, and what comes once a step. In seconds."""

    pipeline_stage: int
    stages: int
    compute: tuple[float, float]
    recompute: tuple[float, float]
    tensor_parallel: tuple[float, float]
    sequence_parallel: tuple[float, float]
    context_parallel: tuple[float, float]
    expert_parallel: tuple[float, float]
    pipeline_transfers: tuple[float, float]
    data_parallel_each: float
    hidden_behind: float
    """The share of the compute time that ZeRO's transfers of every micro-batch can hide behind."""
    data_parallel_once: float
    update: float
    overlapped_share: float

    def step(self, *, micro_batch_size: int, gradient_accumulation_steps: int) -> StepTime:
        """The step time if this stage is the slowest."""
        compute, recompute, tensor, sequence, context, expert, pipeline = (
            fixed + per_sample * micro_batch_size
            for fixed, per_sample in (
                self.compute,
                self.recompute,
                self.tensor_parallel,
                self.sequence_parallel,
                self.context_parallel,
                self.expert_parallel,
                self.pipeline_transfers,
            )
        )
        arithmetic = compute + recompute
        ring = _exposed(context, behind=arithmetic, share=self.overlapped_share)
        left = arithmetic - (context - ring)
        data = _exposed(self.data_parallel_each, behind=left * self.hidden_behind, share=self.overlapped_share)
        every = (arithmetic + tensor + sequence + ring + expert + pipeline) + data
        times = gradient_accumulation_steps
        return StepTime(
            pipeline_stage=self.pipeline_stage,
            compute_seconds=times * compute,
            recompute_seconds=times * recompute,
            bubble_seconds=(self.stages - 1) * every,
            tensor_parallel_seconds=times * tensor,
            sequence_parallel_seconds=times * (sequence + ring),
            expert_parallel_seconds=times * expert,
            pipeline_transfers_seconds=times * pipeline,
            data_parallel_seconds=times * data + self.data_parallel_once,
            update_seconds=self.update,
        )


def step_time(paces: tuple[StagePace, ...], *, micro_batch_size: int, gradient_accumulation_steps: int) -> StepTime:
    """The step of the slowest of the stages; of equals the first."""
    steps = [
        pace.step(micro_batch_size=micro_batch_size, gradient_accumulation_steps=gradient_accumulation_steps)
        for pace in paces
    ]
    return max(steps, key=lambda step: step.step_seconds)


def paces_of(
    shape: ModelShape,
    layout: ParallelLayout,
    training: TrainingSetup,
    hardware: Hardware,
    assumptions: CostAssumptions,
) -> tuple[StagePace, ...]:
    """The pace of each stage that can be the slowest: the ends, the second and the middle one.

    `training` is of 1 sample and 1 step.

    Every transfer either grows with the samples of a micro-batch or not at all, so that one call serves all sizes.
    Raises UsageError where the GPU does not compute in the dtype.
    """
    last = layout.pipeline_parallel_size - 1
    stages = {0, min(1, last), last}
    if shape.num_expert_layers not in (0, shape.num_layers):
        stages.add(last // 2)  # the first layers of such a model are often dense
    return tuple(_pace_of(shape, layout, training, hardware, assumptions, stage) for stage in sorted(stages))


def _pace_of(
    shape: ModelShape,
    layout: ParallelLayout,
    training: TrainingSetup,
    hardware: Hardware,
    assumptions: CostAssumptions,
    stage: int,
) -> StagePace:
    share = rank_share(shape, layout, stage)
    communication = step_communication(shape, layout, training, pipeline_stage=stage)
    seconds: dict[str, list[float]] = {}
    for transfer in communication.transfers:
        name, fixed, per_sample = _seconds_of(transfer, share, layout, training, hardware, assumptions)
        so_far = seconds.setdefault(name, [0.0, 0.0])
        so_far[0] += fixed
        so_far[1] += per_sample
    each = {name: (found[0], found[1]) for name, found in seconds.items()}
    nothing = (0.0, 0.0)
    compute, recompute = _arithmetic(shape, layout, training, hardware, assumptions, share)
    update, offload_each = _update(share, layout, training, hardware, assumptions)
    return StagePace(
        pipeline_stage=stage,
        stages=layout.pipeline_parallel_size,
        compute=compute,
        recompute=recompute,
        tensor_parallel=each.get("tensor", nothing),
        sequence_parallel=each.get("sequence", nothing),
        context_parallel=each.get("context", nothing),
        expert_parallel=each.get("expert", nothing),
        pipeline_transfers=each.get("pipeline", nothing),
        data_parallel_each=sum(each.get("zero each", nothing)) + offload_each,
        hidden_behind=_hidden_behind(training),
        data_parallel_once=sum(each.get("zero once", nothing)),
        update=update,
        overlapped_share=assumptions.overlapped_share,
    )


def _hidden_behind(training: TrainingSetup) -> float:
    """Of a micro-batch's arithmetic, what ZeRO's transfers may hide behind: all of it, its backward, or nothing."""
    if not training.overlaps_communication or training.zero_stage < 2:
        return 0.0
    return 1.0 if training.zero_stage == 3 else 2 / 3


def _exposed(seconds: float, *, behind: float, share: float) -> float:
    """What is left of a communication that hides behind arithmetic as far as it can."""
    return seconds - min(seconds * share, behind)


def _seconds_of(
    transfer: Transfer,
    share: RankShare,
    layout: ParallelLayout,
    training: TrainingSetup,
    hardware: Hardware,
    assumptions: CostAssumptions,
) -> tuple[str, float, float]:
    """Where the time of a transfer belongs; per micro-batch, or per step for "zero once": fixed, and per sample."""
    is_zero = transfer.group in ("data", "expert data")
    moving, waiting = call_seconds(
        transfer.kind,
        transfer.group,
        ranks=transfer.ranks,
        input_bytes=transfer.bytes_each,
        layout=layout,
        hardware=hardware,
        share_of_peak=assumptions.link_share_of_peak,
        ports_of_a_ring=assumptions.ports_of_a_ring,
        pieces=_pieces(transfer, share, layout, training, assumptions) if is_zero else 1,
    )
    if is_zero or transfer.name == "tied embedding gradients":
        is_gradient = transfer.name.endswith("gradients")
        often = training.zero_stage == 3 or (training.zero_stage == 2 and is_gradient)
        name = "zero each" if is_zero and often else "zero once"
        return name, transfer.times * (moving + waiting), 0.0
    return transfer.group, transfer.times * waiting, transfer.times * moving


def _pieces(
    transfer: Transfer,
    share: RankShare,
    layout: ParallelLayout,
    training: TrainingSetup,
    assumptions: CostAssumptions,
) -> int:
    """Calls that DeepSpeed makes of one: buckets or, of ZeRO-3's gathers, modules and prefetches."""
    is_gradient = transfer.name.endswith("gradients")
    elements = transfer.bytes_each // ELEMENT_BYTES[sent_dtype(layout, training) if is_gradient else training.dtype]
    if training.zero_stage == 3 and not is_gradient:
        whole = elements * transfer.ranks
        by_prefetch = ceil(whole / max(1, training.prefetch_bucket_size))
        return max(1, min(by_prefetch, assumptions.gathers_per_layer * max(1, share.num_layers)))
    return max(1, ceil(elements / training.reduce_bucket_size))


def _arithmetic(
    shape: ModelShape,
    layout: ParallelLayout,
    training: TrainingSetup,
    hardware: Hardware,
    assumptions: CostAssumptions,
    share: RankShare,
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Seconds of a micro-batch for compute and for recompute, each as (fixed, per sample)."""
    length = training.sequence_length
    output = 6 * shape.hidden_size * shape.vocabulary_size
    of_layers = (shape.flops_per_token(length) - output) / shape.num_layers * share.num_layers
    of_output = output if share.pipeline_stage == layout.pipeline_parallel_size - 1 else 0
    ranks = layout.tensor_parallel_size * layout.sequence_parallel_size * layout.context_parallel_size
    speed = hardware.peak_in(training.dtype) * assumptions.compute_share_of_peak
    memory_speed = hardware.memory_bytes_per_second * assumptions.memory_share_of_peak
    parameters = share.parameters + share.expert_parameters
    read = parameters * training.element_bytes / memory_speed
    added = 2 * parameters * ELEMENT_BYTES[training.accumulation_dtype] / memory_speed
    activations, scores = _activation_bytes(shape, training)
    moved = length * share.num_layers / ranks / memory_speed
    compute = (of_layers + of_output) * length / ranks / speed + 5 * (activations + scores) * moved
    if training.recompute == "full":
        forward_again = of_layers / 3 * length / ranks / speed + 2 * (activations + scores) * moved
        return (2 * read + added, compute), (read, forward_again)
    if training.recompute == "selective":
        # Attention is what grows with the length of the sequence.
        attention = (shape.flops_per_token(2 * length) - shape.flops_per_token(length)) / shape.num_layers
        core_again = attention / 3 * share.num_layers * length / ranks / speed + 2 * scores * moved
        return (2 * read + added, compute), (0.0, core_again)
    return (2 * read + added, compute), (0.0, 0.0)


def _activation_bytes(shape: ModelShape, training: TrainingSetup) -> tuple[float, float]:
    """Bytes of one layer's activations per token: those that scale with the hidden sizes, and the attention scores.

    Korthikanti et al. 2022, equation 1, without dropout: six tensors of the hidden size, queries, keys and values, and
    two (gated: three) inside the MLP, of the experts those of a token; scores, of heads x sequence length, twice, and
    none with FlashAttention (Dao et al. 2022, arXiv 2205.14135).
    """
    experts = shape.experts
    if experts is None:
        inner = shape.ffn_hidden_size
    else:
        inner = experts.ffn_hidden_size * experts.experts_per_token + experts.shared_ffn_hidden_size
    heads = shape.head_size * (shape.num_attention_heads + 2 * shape.num_key_value_heads)
    values = 6 * shape.hidden_size + heads + (3 if shape.gated_mlp else 2) * inner
    scores = 0 if training.flash_attention else 2 * shape.num_attention_heads * training.sequence_length
    return values * training.element_bytes, scores * training.element_bytes


def _update(
    share: RankShare,
    layout: ParallelLayout,
    training: TrainingSetup,
    hardware: Hardware,
    assumptions: CostAssumptions,
) -> tuple[float, float]:
    """Seconds of the optimizer's update once a step, and of offload in every micro-batch."""
    replicas, experts = replica_size(layout), layout.expert_data_parallel_size
    has_pipeline = layout.pipeline_parallel_size > 1
    is_sharded = training.zero_stage > 0 or uses_bf16_optimizer(training, has_pipeline=has_pipeline)
    of_rank = share.parameters / (replicas if is_sharded else 1)
    of_rank += share.expert_parameters / (experts if is_sharded else 1)
    host = hardware.host_bytes_per_second * assumptions.link_share_of_peak
    size, gradient = training.element_bytes, ELEMENT_BYTES[training.accumulation_dtype]
    each = 0.0
    if training.offload_parameters != "none":
        gathers = 2 if share.parameters + share.expert_parameters > training.max_live_parameters else 1
        each += gathers * of_rank * size / host
    if place_of_state(training) == "device":
        return of_rank * _UPDATE_BYTES / (hardware.memory_bytes_per_second * assumptions.memory_share_of_peak), each
    # Stages 2 and 3 send each micro-batch's gradients to the host, where they add up; stage 1 once.
    if training.zero_stage >= 2:
        each += of_rank * gradient / host
        once = 0.0
    else:
        once = of_rank * gradient / host
    adam = of_rank * min(hardware.gpus_per_node, layout.world_size) / assumptions.host_parameters_per_second
    return once + adam + of_rank * size / host, each
