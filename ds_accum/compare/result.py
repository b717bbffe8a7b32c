"""Comparison: what came out, variant by variant. What `report.json` holds; its schema is made from these classes.

All sizes are in bytes, all times in seconds; None says that a number was not measured, and the variant's `failure` why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ds_accum.compare.spec import RunSpec

__all__ = [
    "CollectiveCount",
    "Communication",
    "Comparison",
    "Memory",
    "Misuse",
    "ParameterDifference",
    "Parity",
    "Speed",
    "StepResult",
    "VariantResult",
]

Moment = Literal["micro-batch", "boundary", "step"]
"""When a collective is called: in a forward or backward that is not the window's last, in that of the last, or in the
optimizer step."""

CollectiveKind = Literal["all-reduce", "reduce-scatter", "all-gather", "broadcast", "all-to-all", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """One optimizer step of one variant."""

    step: int
    """Counted from 1."""

    loss: float | None
    """Mean over all counted tokens of the global batch, before the update."""

    num_tokens: int
    grad_norm: float | None
    clip_coefficient: float | None
    applied: bool
    update_error: float | None
    """|parameters - truth| / |truth - start|, L2 over all parameters in float64; None without the truth, and for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterDifference:
    """Where a variant first leaves the truth by more than the tolerance: the parameter that is furthest off there."""

    step: int
    """Counted from 1."""

    parameter: str
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """How far a variant is from the truth."""

    steps: tuple[StepResult, ...]
    largest_error: float | None
    tolerance: float
    """What rounding in the dtype explains."""

    first_difference: ParameterDifference | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCount:
    """Calls and bytes of one kind at one moment, per optimizer step and rank; bytes are those of the call's input."""

    kind: CollectiveKind
    moment: Moment
    calls: float
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """Collectives of one optimizer step."""

    counted: tuple[CollectiveCount, ...]
    expected: tuple[CollectiveCount, ...] | None
    """By the formula for the stage and the accumulation; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldMemory:
    """Tensors of one rank, in bytes, gradients as they are right before the update."""

    parameters: int
    gradients: int
    optimizer_state: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One rank, the largest, of a fresh process."""

    peak: int
    """Resident on a CPU, allocated on CUDA, over what the process held before the model."""

    reserved: int | None
    parameters: int
    gradients: int
    optimizer_state: int
    estimate: HeldMemory | None = None
    """What the planner says to the three above; None where it has no formula."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Times of the steps after the warm-up, on the slowest rank."""

    step_seconds: tuple[float, ...]
    forward_seconds: float
    backward_seconds: float
    update_seconds: float
    """Medians."""

    communication_share: float | None
    """Share of a step spent in calls of collectives."""

    tokens_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Misuse:
    """What one misuse in the middle of a window does to the step."""

    misuse: str
    outcome: str
    """"no effect", "changes the step", "stopped: ClippedByHandError", "fails: ..."."""

    step_error: float | None
    """Relative error of the step's update against the right one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantResult:
    """Everything about one variant."""

    name: str
    status: Literal["done", "refused", "failed", "unfinished"]
    failure: str | None = None
    """Why it was refused (the linter's finding) or failed: the end of a rank's stderr, if it said something, and as the
    last line one sentence."""

    parity: Parity | None = None
    communication: Communication | None = None
    memory: Memory | None = None
    speed: Speed | None = None
    misuses: tuple[Misuse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A whole report."""

    format: int
    """Version of this layout; 1."""

    spec: RunSpec
    versions: Mapping[str, str]
    """Of ds-accum, DeepSpeed, torch and Python."""

    machine: Mapping[str, str]
    """Processor, cores, memory, accelerator."""

    parameters: int
    """Trainable parameters of the workload's model."""

    results: tuple[VariantResult, ...]
