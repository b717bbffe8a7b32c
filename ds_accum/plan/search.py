"""plan_batch: every legal layout of a model on a number of GPUs, those that fit in order of time per token.

    plan = plan_batch(shape=read_shape("llama-2-70b"), hardware=read_hardware("H100-80GB"), world_size=64,
                      sequence_length=4096, tokens_per_step=2**22)
    plan.layouts[0].ledger.describe()      # global batch 1024 = micro batch 1 x data parallel 8 x accumulation 128
    plan.layouts[0].step.step_seconds

The search leaves out no legal layout. It saves work in two ways that lose nothing: a micro-batch that needs too much
memory rules out every larger one of the same layout (the same samples in fewer, larger micro-batches never need less;
a single micro-batch a step, which needs no buffer to add up in, is tried on its own), and a layout's transfers are
timed once for all micro-batch sizes, with which they grow in proportion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ds_accum.batch import BatchLedger, ParallelLayout
from ds_accum.batch.divisibility import divisors
from ds_accum.batch.wording import require_integer
from ds_accum.errors import LayoutError, UsageError
from ds_accum.plan.communication import StepCommunication, step_communication
from ds_accum.plan.cost import CostAssumptions, StepTime, paces_of, step_time
from ds_accum.plan.hardware import Hardware
from ds_accum.plan.layouts import Limits, RefusedDegree, legal_layouts, refused_degrees, ways_to_train
from ds_accum.plan.memory import MemoryEstimate, estimate_memory
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.targets import resolve_target
from ds_accum.plan.training import TrainingSetup

__all__ = ["Dropped", "Miss", "Plan", "PlannedLayout", "Reason", "bubble_share", "default_training", "plan_batch"]

Reason = Literal["memory", "host memory", "bubble", "batch", "layout"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedLayout:
    """One layout that fits, with all that it was judged by."""

    layout: ParallelLayout
    ledger: BatchLedger
    training: TrainingSetup
    memory: MemoryEstimate
    step: StepTime
    communication: StepCommunication

    @property
    def bubble_share(self) -> float:
        """The idle share of the pipeline's time, from 0 to 1."""
        return bubble_share(self.layout.pipeline_parallel_size, self.ledger.gradient_accumulation_steps)

    @property
    def tokens_per_second(self) -> float:
        """Of all GPUs together."""
        return self.ledger.tokens_per_step(sequence_length=self.training.sequence_length) / self.step.step_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Miss:
    """The layout that came closest among those dropped for one reason.

    `needed` and `available` are bytes for memory, shares for the bubble.
    """

    layout: ParallelLayout
    ledger: BatchLedger
    training: TrainingSetup
    needed: float
    available: float

    @property
    def factor(self) -> float:
        """How many times what there is it would need."""
        return self.needed / self.available if self.available else float("inf")


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropped:
    """How many layouts were dropped for a reason, and the one that missed by least (None: a batch that is uneven)."""

    reason: Reason
    count: int
    nearest: Miss | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What was asked, the layouts that fit, best first, and what was dropped.

    `layouts` holds the first of `fitting`; `splits` the best of every way to divide the GPUs, best first.
    """

    shape: ModelShape
    hardware: Hardware
    world_size: int
    sequence_length: int
    global_batch_size: int
    limits: Limits
    assumptions: CostAssumptions
    considered: int
    fitting: int
    layouts: tuple[PlannedLayout, ...]
    splits: tuple[PlannedLayout, ...]
    dropped: tuple[Dropped, ...]
    refused: tuple[RefusedDegree, ...]

    @property
    def tokens_per_step(self) -> int:
        """Token positions of one optimizer step."""
        return self.global_batch_size * self.sequence_length

    def model_flops_share(self, planned: PlannedLayout) -> float:
        """Of the peak of all GPUs, what goes into the model's own arithmetic (model FLOPs utilization), 0 to 1."""
        operations = self.shape.flops_per_token(self.sequence_length) * self.tokens_per_step
        peak = self.hardware.peak_in(planned.training.dtype) * self.world_size
        return operations / (planned.step.step_seconds * peak)


def bubble_share(stages: int, micro_batches: int) -> float:
    """(p - 1) / (m + p - 1): Narayanan et al. 2021, arXiv 2104.04473, section 2.2, as a share of the whole."""
    return (stages - 1) / (micro_batches + stages - 1)


def plan_batch(
    *,
    shape: ModelShape,
    hardware: Hardware,
    world_size: int,
    sequence_length: int,
    global_batch_size: int | None = None,
    tokens_per_step: int | None = None,
    training: TrainingSetup | None = None,
    limits: Limits | None = None,
    assumptions: CostAssumptions | None = None,
    most: int = 5,
) -> Plan:
    """The plan; `most` layouts of it, and as many splits, are worked out in full.

    `training` says what is the same for all layouts: dtype, grad_accum_dtype, communication_dtype, optimizer,
    flash_attention, megatron_sequence_parallel (where there is tensor parallelism), buckets; its stage, sizes,
    recompute and offload are what the search varies. Left out, it is `default_training`.

    Raises BatchError where no legal layout meets the target exactly, UsageError for numbers out of range. That nothing
    fits is no error: `layouts` is empty then, and `dropped` says what came closest.
    """
    limits, assumptions = limits or Limits(), assumptions or CostAssumptions()
    require_integer(most, name="number of layouts", error=UsageError)
    require_integer(sequence_length, name="sequence length", error=UsageError)
    base = training or default_training(sequence_length)
    base = replace(base, sequence_length=sequence_length, micro_batch_size=1, gradient_accumulation_steps=1)
    hardware.peak_in(base.dtype)
    where = {
        "world_size": world_size,
        "gpus_per_node": hardware.gpus_per_node,
        "sequence_length": sequence_length,
    }
    layouts = legal_layouts(shape, limits=limits, **where)
    batch = resolve_target(
        sequence_length=sequence_length,
        data_parallel_sizes={layout.data_parallel_size for layout in layouts},
        global_batch_size=global_batch_size,
        tokens_per_step=tokens_per_step,
    )
    search = _Search(shape=shape, hardware=hardware, limits=limits, assumptions=assumptions, batch=batch)
    for layout in layouts:
        search.try_layout(layout, base)
    found = sorted(search.fitting, key=_order)
    return Plan(
        shape=shape,
        hardware=hardware,
        world_size=world_size,
        sequence_length=sequence_length,
        global_batch_size=batch,
        limits=limits,
        assumptions=assumptions,
        considered=search.considered,
        fitting=len(found),
        layouts=tuple(search.in_full(candidate) for candidate in found[:most]),
        splits=tuple(search.in_full(candidate) for candidate in _best_of_each_split(found)[:most]),
        dropped=search.dropped(),
        refused=refused_degrees(shape, limits=limits, **where),
    )


def default_training(sequence_length: int) -> TrainingSetup:
    """bf16 whose gradients add up and travel in float32, AdamW, FlashAttention, and Megatron's sequence parallel."""
    return TrainingSetup(
        zero_stage=1,
        micro_batch_size=1,
        gradient_accumulation_steps=1,
        sequence_length=sequence_length,
        dtype="bf16",
        grad_accum_dtype="fp32",
        communication_dtype="fp32",
        megatron_sequence_parallel=True,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Candidate:
    """A layout that fits, before anything is worked out that only a reader needs."""

    layout: ParallelLayout
    training: TrainingSetup
    step: StepTime


def _order(candidate: _Candidate) -> tuple[object, ...]:
    """Fastest first; of equals the one with the least machinery, so that the answer is always the same."""
    layout, training = candidate.layout, candidate.training
    return (
        candidate.step.step_seconds,
        training.zero_stage,
        ("none", "selective", "full").index(training.recompute),
        training.offload_optimizer,
        training.offload_parameters,
        layout.pipeline_parallel_size,
        layout.tensor_parallel_size,
        layout.context_parallel_size,
        layout.sequence_parallel_size,
        layout.expert_parallel_size,
        training.micro_batch_size,
    )


def _best_of_each_split(found: Sequence[_Candidate]) -> list[_Candidate]:
    """Of each layout the first, in the order given."""
    best: dict[ParallelLayout, _Candidate] = {}
    for candidate in found:
        best.setdefault(candidate.layout, candidate)
    return list(best.values())


class _Search:
    """The state of one search: what fits, and of what does not the count and the nearest miss by reason."""

    def __init__(
        self, *, shape: ModelShape, hardware: Hardware, limits: Limits, assumptions: CostAssumptions, batch: int
    ) -> None:
        self.shape, self.hardware, self.limits, self.assumptions = shape, hardware, limits, assumptions
        self.batch = batch
        self.considered = 0
        self.fitting: list[_Candidate] = []
        self._counts: dict[Reason, int] = {}
        self._nearest: dict[Reason, Miss] = {}

    def try_layout(self, layout: ParallelLayout, base: TrainingSetup) -> None:
        """All ways to train and all micro-batch sizes of one layout."""
        sizes = self._micro_batch_sizes(layout)
        ways = list(
            ways_to_train(
                layout,
                self.limits,
                dtype=base.dtype,
                accumulates_in_fp32=base.accumulation_dtype == "fp32",
                flash_attention=base.flash_attention,
            )
        )
        if not sizes:
            self.considered += len(ways)
            self._count("batch", len(ways))
            return
        for stage, recompute, optimizer_place, parameter_place in ways:
            training = replace(
                base,
                zero_stage=stage,
                recompute=recompute,
                offload_optimizer=optimizer_place,
                offload_parameters=parameter_place,
                # DeepSpeed overlaps at stage 3 of itself; at stage 2 the written config asks for it.
                overlap_comm=True if stage == 2 else base.overlap_comm,
                megatron_sequence_parallel=base.megatron_sequence_parallel and _splits_sequence(layout, base),
            )
            self.considered += len(sizes)
            self._try_way(layout, training, sizes)

    def in_full(self, candidate: _Candidate) -> PlannedLayout:
        """A candidate with its memory by part and its transfers."""
        layout, training = candidate.layout, candidate.training
        communication = step_communication(self.shape, layout, training, pipeline_stage=candidate.step.pipeline_stage)
        return PlannedLayout(
            layout=layout,
            ledger=_ledger(layout, training),
            training=training,
            memory=estimate_memory(self.shape, layout, training),
            step=candidate.step,
            communication=communication,
        )

    def dropped(self) -> tuple[Dropped, ...]:
        """By reason, in a fixed order."""
        order: tuple[Reason, ...] = ("memory", "host memory", "bubble", "batch", "layout")
        return tuple(
            Dropped(reason=reason, count=self._counts[reason], nearest=self._nearest.get(reason))
            for reason in order
            if reason in self._counts
        )

    def _micro_batch_sizes(self, layout: ParallelLayout) -> tuple[int, ...]:
        """Those whose multiples by data parallel and accumulation are exactly the batch, ascending."""
        if self.batch % layout.data_parallel_size:
            return ()
        of_rank = divisors(self.batch // layout.data_parallel_size)
        assert of_rank is not None, "the target is below the limit of divisors"
        most = self.limits.max_micro_batch_size
        return tuple(size for size in of_rank if most is None or size <= most)

    def _try_way(self, layout: ParallelLayout, training: TrainingSetup, sizes: Sequence[int]) -> None:
        of_rank = self.batch // layout.data_parallel_size
        sized = [
            replace(training, micro_batch_size=size, gradient_accumulation_steps=of_rank // size) for size in sizes
        ]
        kept = list(self._within_bubble(layout, sized))
        try:
            fitting = self._that_fit(layout, kept)
        except LayoutError:  # the model can't be cut like this, as the account of its memory finds out
            self._count("layout", len(kept))
            return
        if not fitting:
            return
        paces = paces_of(self.shape, layout, training, self.hardware, self.assumptions)
        for setup in fitting:
            step = step_time(
                paces,
                micro_batch_size=setup.micro_batch_size,
                gradient_accumulation_steps=setup.gradient_accumulation_steps,
            )
            self.fitting.append(_Candidate(layout=layout, training=setup, step=step))

    def _within_bubble(self, layout: ParallelLayout, setups: Sequence[TrainingSetup]) -> Iterator[TrainingSetup]:
        most = self.limits.max_bubble
        for setup in setups:
            share = bubble_share(layout.pipeline_parallel_size, setup.gradient_accumulation_steps)
            if most is None or share <= most:
                yield setup
            else:
                self._count("bubble", 1)
                self._note_miss("bubble", layout, setup, needed=share, available=most)

    def _that_fit(self, layout: ParallelLayout, setups: Sequence[TrainingSetup]) -> list[TrainingSetup]:
        """Those whose memory is there. `setups` ascend in the micro-batch; see the module on what is not tried."""
        single = [setup for setup in setups if setup.gradient_accumulation_steps == 1]
        several = setups[: len(setups) - len(single)]
        fitting: list[TrainingSetup] = []
        for group in (several, single):
            low, high = 0, len(group)  # those below `low` fit, those from `high` on do not
            while low < high:
                middle = (low + high) // 2
                if self._fits(layout, group[middle]):
                    low = middle + 1
                else:
                    high = middle
            fitting += group[:low]
            if low < len(group):
                reason = self._note_memory(layout, group[low])
                self._count(reason, len(group) - low)
        return fitting

    def _fits(self, layout: ParallelLayout, setup: TrainingSetup) -> bool:
        memory = estimate_memory(self.shape, layout, setup)
        return memory.peak_bytes <= self.hardware.memory_bytes and not self._overfills_host(layout, memory)

    def _overfills_host(self, layout: ParallelLayout, memory: MemoryEstimate) -> bool:
        there = self.limits.host_memory_bytes
        return there is not None and self._host_bytes(layout, memory) > there

    def _host_bytes(self, layout: ParallelLayout, memory: MemoryEstimate) -> int:
        """Of one node."""
        return memory.host_bytes * min(self.hardware.gpus_per_node, layout.world_size)

    def _note_memory(self, layout: ParallelLayout, setup: TrainingSetup) -> Reason:
        """Why the smallest micro-batch that does not fit does not."""
        memory = estimate_memory(self.shape, layout, setup)
        there = self.hardware.memory_bytes
        if memory.peak_bytes > there:
            self._note_miss("memory", layout, setup, needed=memory.peak_bytes, available=there)
            return "memory"
        on_host = self.limits.host_memory_bytes
        assert on_host is not None, "what fits on the GPU can only miss on the host"
        self._note_miss("host memory", layout, setup, needed=self._host_bytes(layout, memory), available=on_host)
        return "host memory"

    def _note_miss(
        self, reason: Reason, layout: ParallelLayout, setup: TrainingSetup, *, needed: float, available: float
    ) -> None:
        best = self._nearest.get(reason)
        if best is None or needed < best.needed:
            self._nearest[reason] = Miss(
                layout=layout, ledger=_ledger(layout, setup), training=setup, needed=needed, available=available
            )

    def _count(self, reason: Reason, number: int) -> None:
        if number:
            self._counts[reason] = self._counts.get(reason, 0) + number


def _splits_sequence(layout: ParallelLayout, training: TrainingSetup) -> bool:
    """Whether tensor-parallel ranks can split the tokens of a sequence among them (Megatron's sequence parallel)."""
    tokens = training.sequence_length // (layout.context_parallel_size * layout.sequence_parallel_size)
    return layout.tensor_parallel_size > 1 and tokens % layout.tensor_parallel_size == 0


def _ledger(layout: ParallelLayout, training: TrainingSetup) -> BatchLedger:
    return BatchLedger(
        micro_batch_size=training.micro_batch_size,
        gradient_accumulation_steps=training.gradient_accumulation_steps,
        data_parallel_size=layout.data_parallel_size,
    )
