"""What a plan consists of: layouts that fit, best first, and those that do not, with the nearest miss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from ds_accum.batch import BatchLedger, ParallelLayout
from ds_accum.plan.communication import StepCommunication
from ds_accum.plan.cost import CostAssumptions, StepTime
from ds_accum.plan.hardware import Hardware
from ds_accum.plan.layouts import Limits, RefusedDegree
from ds_accum.plan.memory import MemoryEstimate
from ds_accum.plan.pipeline import bubble_share
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.training import TrainingSetup

__all__ = ["REASONS", "Dropped", "Miss", "Plan", "PlannedLayout", "Reason"]

Reason = Literal["memory", "host memory", "bubble", "batch", "layout"]
"""Why a legal layout is dropped: it does not fit on the GPU, or on the host; its bubble is too large; its data parallel
size does not divide the batch; the model can't be cut like that."""

REASONS: tuple[Reason, ...] = get_args(Reason)


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
        return float(bubble_share(self.layout.pipeline_parallel_size, self.ledger.gradient_accumulation_steps))

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

    `training` is what all layouts have in common; `layouts` holds the first of `fitting`, `splits` the best of every
    way to divide the GPUs, best first. `uneven_data_parallel_sizes` are those of legal layouts that do not divide the
    batch, ascending.
    """

    shape: ModelShape
    hardware: Hardware
    world_size: int
    sequence_length: int
    global_batch_size: int
    training: TrainingSetup
    limits: Limits
    assumptions: CostAssumptions
    considered: int
    fitting: int
    layouts: tuple[PlannedLayout, ...]
    splits: tuple[PlannedLayout, ...]
    dropped: tuple[Dropped, ...]
    uneven_data_parallel_sizes: tuple[int, ...]
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
