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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ds_accum.batch import BatchLedger, ParallelLayout
from ds_accum.batch.divisibility import divisors
from ds_accum.batch.wording import require_integer
from ds_accum.errors import LayoutError, UsageError
from ds_accum.plan.communication import step_communication
from ds_accum.plan.cost import CostAssumptions, StepTime, paces_of, step_time
from ds_accum.plan.hardware import Hardware
from ds_accum.plan.layouts import Limits, legal_layouts, refused_degrees, splits_sequence, ways_to_train
from ds_accum.plan.memory import estimate_memory
from ds_accum.plan.pipeline import bubble_share
from ds_accum.plan.planned import REASONS, Dropped, Miss, Plan, PlannedLayout, Reason
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.targets import resolve_target
from ds_accum.plan.training import TrainingSetup

__all__ = ["default_training", "plan_batch"]

MemoryReason = Literal["memory", "host memory"]


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
    data_parallel_sizes = {layout.data_parallel_size for layout in layouts}
    batch = resolve_target(
        sequence_length=sequence_length,
        data_parallel_sizes=data_parallel_sizes,
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
        training=base,
        limits=limits,
        assumptions=assumptions,
        considered=search.considered,
        fitting=len(found),
        layouts=tuple(search.in_full(candidate) for candidate in found[:most]),
        splits=tuple(search.in_full(candidate) for candidate in _best_of_each_split(found)[:most]),
        dropped=search.dropped(),
        uneven_data_parallel_sizes=tuple(sorted(size for size in data_parallel_sizes if batch % size)),
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
    """A layout that fits, before anything is worked out that only a reader needs. `way` is of 1 sample, 1 step."""

    layout: ParallelLayout
    way: TrainingSetup
    micro_batch_size: int
    gradient_accumulation_steps: int
    step: StepTime


def _order(candidate: _Candidate) -> tuple[object, ...]:
    """Fastest first; of equals the one with the least machinery, so that the answer is always the same."""
    layout, way = candidate.layout, candidate.way
    return (
        candidate.step.step_seconds,
        way.zero_stage,
        ("none", "selective", "full").index(way.recompute),
        way.offload_optimizer != "none",
        way.offload_parameters != "none",
        layout.pipeline_parallel_size,
        layout.tensor_parallel_size,
        layout.context_parallel_size,
        layout.sequence_parallel_size,
        layout.expert_parallel_size,
        candidate.micro_batch_size,
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
        ways = ways_to_train(
            layout,
            self.limits,
            dtype=base.dtype,
            accumulates_in_fp32=base.accumulation_dtype == "fp32",
            flash_attention=base.flash_attention,
        )
        sizes = self._micro_batch_sizes(layout)
        for stage, recompute, optimizer_place, parameter_place in ways:
            self.considered += len(sizes) or 1
            if not sizes:
                self._count("batch", 1)
                continue
            way = replace(
                base,
                zero_stage=stage,
                recompute=recompute,
                offload_optimizer=optimizer_place,
                offload_parameters=parameter_place,
                # DeepSpeed overlaps at stage 3 of itself; at stage 2 the written config asks for it.
                overlap_comm=True if stage == 2 else base.overlap_comm,
                megatron_sequence_parallel=base.megatron_sequence_parallel
                and splits_sequence(layout, base.sequence_length),
            )
            try:
                self._try_way(layout, way, sizes)
            except LayoutError:  # the model can't be cut like this, as the account of its memory finds out
                self._count("layout", len(sizes))

    def in_full(self, candidate: _Candidate) -> PlannedLayout:
        """A candidate with its memory by part and its transfers."""
        layout = candidate.layout
        training = self._sized(layout, candidate.way, candidate.micro_batch_size)
        return PlannedLayout(
            layout=layout,
            ledger=_ledger(layout, training),
            training=training,
            memory=estimate_memory(self.shape, layout, training),
            step=candidate.step,
            communication=step_communication(
                self.shape, layout, training, pipeline_stage=candidate.step.pipeline_stage
            ),
        )

    def dropped(self) -> tuple[Dropped, ...]:
        """By reason, in a fixed order."""
        return tuple(
            Dropped(reason=reason, count=self._counts[reason], nearest=self._nearest.get(reason))
            for reason in REASONS
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

    def _sized(self, layout: ParallelLayout, way: TrainingSetup, micro_batch_size: int) -> TrainingSetup:
        accumulation = self.batch // (layout.data_parallel_size * micro_batch_size)
        return replace(way, micro_batch_size=micro_batch_size, gradient_accumulation_steps=accumulation)

    def _try_way(self, layout: ParallelLayout, way: TrainingSetup, sizes: Sequence[int]) -> None:
        fitting = self._that_fit(layout, way, self._within_bubble(layout, way, sizes))
        if not fitting:
            return
        paces = paces_of(self.shape, layout, way, self.hardware, self.assumptions)
        for size in fitting:
            accumulation = self.batch // (layout.data_parallel_size * size)
            self.fitting.append(
                _Candidate(
                    layout=layout,
                    way=way,
                    micro_batch_size=size,
                    gradient_accumulation_steps=accumulation,
                    step=step_time(paces, micro_batch_size=size, gradient_accumulation_steps=accumulation),
                )
            )

    def _within_bubble(self, layout: ParallelLayout, way: TrainingSetup, sizes: Sequence[int]) -> Sequence[int]:
        most = self.limits.max_bubble
        if most is None:
            return sizes
        kept = []
        for size in sizes:
            accumulation = self.batch // (layout.data_parallel_size * size)
            share = bubble_share(layout.pipeline_parallel_size, accumulation)
            if share <= most:
                kept.append(size)
            else:
                self._count("bubble", 1)
                miss = _miss(layout, self._sized(layout, way, size), needed=float(share), available=float(most))
                self._keep_nearer("bubble", miss)
        return kept

    def _that_fit(self, layout: ParallelLayout, way: TrainingSetup, sizes: Sequence[int]) -> list[int]:
        """Those whose memory is there. `sizes` ascend; see the module on which are not tried."""
        all_at_once = self.batch // layout.data_parallel_size
        several = [size for size in sizes if size != all_at_once]
        fitting: list[int] = []
        for group in (several, sizes[len(several) :]):
            on_gpu = self._leading_that_fit("memory", layout, way, group)
            fitting += self._leading_that_fit("host memory", layout, way, on_gpu)
        return fitting

    def _leading_that_fit(
        self, reason: MemoryReason, layout: ParallelLayout, way: TrainingSetup, sizes: Sequence[int]
    ) -> Sequence[int]:
        """The sizes, which ascend, up to the first that needs more of one memory than there is; the others count."""
        available = self.hardware.memory_bytes if reason == "memory" else self.limits.host_memory_bytes
        if available is None:
            return sizes
        low, high = 0, len(sizes)  # those below `low` fit, those from `high` on do not
        nearest: Miss | None = None
        while low < high:
            middle = (low + high) // 2
            training = self._sized(layout, way, sizes[middle])
            needed = self._needed_bytes(reason, layout, training)
            if needed <= available:
                low = middle + 1
            else:
                high, nearest = middle, _miss(layout, training, needed=needed, available=available)
        if nearest is not None:
            # Of those that do not fit the smallest misses by least, and it was the last to be tried.
            self._count(reason, len(sizes) - low)
            self._keep_nearer(reason, nearest)
        return sizes[:low]

    def _needed_bytes(self, reason: MemoryReason, layout: ParallelLayout, training: TrainingSetup) -> int:
        """Of one GPU, or of the host of one node."""
        memory = estimate_memory(self.shape, layout, training)
        if reason == "memory":
            return memory.peak_bytes
        return memory.host_bytes * min(self.hardware.gpus_per_node, layout.world_size)

    def _keep_nearer(self, reason: Reason, miss: Miss) -> None:
        best = self._nearest.get(reason)
        if best is None or miss.needed < best.needed:
            self._nearest[reason] = miss

    def _count(self, reason: Reason, number: int) -> None:
        self._counts[reason] = self._counts.get(reason, 0) + number


def _miss(layout: ParallelLayout, training: TrainingSetup, *, needed: float, available: float) -> Miss:
    return Miss(layout=layout, ledger=_ledger(layout, training), training=training, needed=needed, available=available)


def _ledger(layout: ParallelLayout, training: TrainingSetup) -> BatchLedger:
    return BatchLedger(
        micro_batch_size=training.micro_batch_size,
        gradient_accumulation_steps=training.gradient_accumulation_steps,
        data_parallel_size=layout.data_parallel_size,
    )
