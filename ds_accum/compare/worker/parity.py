"""All variants trained in turn, step by step, each beside the truth; then, beyond the compared steps, what they call.

error after a step = |parameters - truth| / |truth - start|, L2 over all trainable parameters, float64
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ds_accum.compare.formulas import expected_communication
from ds_accum.compare.result import (
    Communication,
    ParameterDifference,
    Parity,
    StepResult,
    VariantResult,
)
from ds_accum.compare.spec import RunSpec, Variant
from ds_accum.compare.worker.communication import CollectiveCounter
from ds_accum.compare.worker.engines import Context, Engine, start
from ds_accum.compare.worker.engines.protocol import dtype_of
from ds_accum.compare.worker.job import EventLog, Job
from ds_accum.compare.worker.speed import WindowTimes, speed_of
from ds_accum.compare.worker.watch import Watch
from ds_accum.compare.worker.workloads import MicroBatch, micro_batches

__all__ = ["batches_of", "rounding_of", "run", "tolerance_of"]

FP32, FP32_CLIPPED, HALF = 1e-5, 1e-4, 2e-2
"""What rounding in the computation explains. Clipping makes updates smaller, what is rounded stays what it is."""

COUNTED_FROM = 2
"""The first windows are not counted: ZeRO-3 learns the order of parameters in them, and engines agree on things."""
WAITED_WINDOWS = 3
"""Windows in which every collective is waited for, to see how long they take."""


def tolerance_of(variant: Variant, spec: RunSpec, rounding: float) -> float:
    """The largest error of a variant's parameters that its dtype explains; `rounding` is that of `rounding_of`."""
    if dtype_of(variant, spec) != "fp32":
        return HALF + rounding
    return (FP32_CLIPPED if spec.gradient_clipping else FP32) + rounding


def rounding_of(before: Mapping[str, Tensor] | None, after: Mapping[str, Tensor] | None) -> float:
    """What storing parameters in fp32 adds to the error of an update: 2^-24 |after| / |after - before|.

    That is little unless the update is small beside the parameters, as it is with a small learning rate.
    """
    if before is None or after is None:
        return 0.0
    size = math.sqrt(sum(float(value.square().sum()) for value in after.values()))
    moved = math.sqrt(sum(value**2 for value in _distance(after, before).values()))
    return 2.0**-24 * size / moved if moved else 0.0


@dataclass(slots=True)
class _Run:
    """One variant of the launch, and what was seen of it so far."""

    variant: Variant
    engine: Engine
    steps: list[StepResult] = field(default_factory=list)
    first_difference: ParameterDifference | None = None
    times: list[WindowTimes] = field(default_factory=list)
    communication: Communication | None = None
    waited: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Truth:
    """Where the parameters should be, on rank 0: before the first step and after this one; and how large they are."""

    initial: Mapping[str, Tensor] | None = None
    now: Mapping[str, Tensor] | None = None
    rounding: float = 0.0
    """Of the first step, the smallest update."""

    sizes: Sequence[int] = ()
    """Elements of each parameter, once one variant has shown them."""


def run(job: Job, context: Context, log: EventLog | None) -> None:
    """Trains all variants of the job and reports them. A variant that fails alike on all ranks is left out from there.

    Raises OutOfStepError where ranks part.
    """
    runs = [built for variant in job.chosen if (built := _start(variant, context, log)) is not None]
    truth = _Truth()
    spec = job.spec
    try:
        for step in range(spec.steps):
            truth.now = None
            for item in _in_turn(runs, step):
                if not _train_one_step(item, step, context, truth, log):
                    runs.remove(item)
        for item in list(runs):
            if item.variant.engine != "single" and not _look_at_collectives(item, context, truth, log):
                runs.remove(item)
    except BaseException:
        for item in runs:
            if log is not None:
                log.result(_result(item, spec, truth, status="unfinished"))
        raise
    for item in runs:
        if log is not None:
            log.result(_result(item, spec, truth, status="done"))
        item.engine.close()


def _start(variant: Variant, context: Context, log: EventLog | None) -> _Run | None:
    """The variant's engine; None where it can't be built, which is reported."""
    if log is not None:
        log.started(variant.name)
    engine, error = None, None
    try:
        engine = start(variant, context)
    except Exception as raised:
        error = raised
    why = context.ranks.failure(error)
    if why is not None or engine is None:
        if log is not None:
            log.failed(variant.name, why or "no engine")
        return None
    return _Run(variant=variant, engine=engine)


def _in_turn(runs: list[_Run], step: int) -> list[_Run]:
    """The truth first, then the others, another one of them first in each step."""
    truths = [item for item in runs if item.variant.engine == "single"]
    others = [item for item in runs if item.variant.engine != "single"]
    first = step % len(others) if others else 0
    return truths + others[first:] + others[:first]


def batches_of(item: Variant, engine: Engine, step: int, context: Context) -> list[MicroBatch]:
    """What this rank trains on in a step. The truth has one rank, which takes all."""
    alone = item.engine == "single"
    return micro_batches(
        engine.training,
        step=step,
        global_batch_size=context.spec.global_batch_size,
        micro_batch_size=item.micro_batch_size,
        rank=0 if alone else context.ranks.rank,
        world_size=1 if alone else context.ranks.world_size,
    )


def _train_one_step(item: _Run, step: int, context: Context, truth: _Truth, log: EventLog | None) -> bool:
    """One compared step. False where it failed on all ranks."""
    ranks, watch = context.ranks, Watch(context.ranks.device)
    outcome, error = None, None
    if log is not None:
        # Said at every step: whoever sees the launch hang knows with which variant.
        log.started(item.variant.name)
    try:
        if truth.initial is None and item.variant.engine == "single":
            truth.initial = item.engine.parameters()
        batches = batches_of(item.variant, item.engine, step, context)
        outcome = item.engine.train_window(batches, watch)
    except Exception as raised:
        error = raised
    if _failed(item, error, context, log) or outcome is None:
        return False
    parameters = item.engine.parameters()
    loss_sum, tokens = ranks.sum([outcome.loss_sum, float(outcome.num_tokens)])
    item.times.append(WindowTimes.slowest(watch.seconds, tokens, ranks))
    error_of_update = None
    if parameters is not None:
        if not truth.sizes:
            truth.sizes = [parameter.numel() for parameter in parameters.values()]
            if log is not None:
                log.model(sum(truth.sizes), _accelerator(ranks.device))
        if item.variant.engine == "single":
            truth.now = parameters
            if step == 0:
                truth.rounding = rounding_of(truth.initial, parameters)
        else:
            error_of_update = _compare(item, step, parameters, truth, context.spec)
    item.steps.append(
        StepResult(
            step=step + 1,
            loss=loss_sum / tokens if tokens else None,
            num_tokens=int(tokens),
            grad_norm=outcome.grad_norm,
            clip_coefficient=outcome.clip_coefficient,
            applied=outcome.applied,
            update_error=error_of_update,
        )
    )
    if log is not None:
        log.progress(item.variant.name, step + 1, _all_windows(item, context.spec))
    return True


def _all_windows(item: _Run, spec: RunSpec) -> int:
    """How many windows a variant trains in a launch."""
    return spec.steps if item.variant.engine == "single" else max(COUNTED_FROM, spec.steps) + 1 + WAITED_WINDOWS


def _failed(item: _Run, error: BaseException | None, context: Context, log: EventLog | None) -> bool:
    """Whether a variant failed, on all ranks alike, which is reported."""
    why = context.ranks.failure(error)
    if why is not None and log is not None:
        log.failed(item.variant.name, why)
    return why is not None


def _compare(item: _Run, step: int, parameters: Mapping[str, Tensor], truth: _Truth, spec: RunSpec) -> float | None:
    """The error after a step, and where it first passes the tolerance, noted."""
    if truth.initial is None or truth.now is None:
        return None
    moved = _distance(truth.now, truth.initial)
    total = math.sqrt(sum(value**2 for value in moved.values())) or 1.0
    # Of every parameter its part of the error: their squares add up to that of the whole.
    parts = {name: value / total for name, value in _distance(parameters, truth.now).items()}
    error = math.sqrt(sum(value**2 for value in parts.values()))
    # A number that is not one is past every tolerance.
    if item.first_difference is None and not error <= tolerance_of(item.variant, spec, truth.rounding):
        furthest = max(parts, key=lambda name: math.inf if math.isnan(parts[name]) else parts[name])
        item.first_difference = ParameterDifference(step=step + 1, parameter=furthest, error=parts[furthest])
    return error


def _distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> dict[str, float]:
    return {name: float(torch.linalg.vector_norm(one[name] - other[name])) for name in other}


def _accelerator(device: torch.device) -> str | None:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else None


def _look_at_collectives(item: _Run, context: Context, truth: _Truth, log: EventLog | None) -> bool:
    """Trains on for a few windows: one in which collectives are counted, some in which they are waited for."""
    if log is not None:
        log.started(item.variant.name)
    counting = max(COUNTED_FROM, context.spec.steps)
    error = None
    waited = []
    try:
        for window in range(context.spec.steps, counting + 1 + WAITED_WINDOWS):
            watch = Watch(context.ranks.device)
            counter = CollectiveCounter(watch, wait=window > counting)
            batches = batches_of(item.variant, item.engine, window, context)
            with counter:
                item.engine.train_window(batches, watch)
            if window == counting:
                item.communication = _beside_the_formula(counter.counted(), item, truth, context.spec)
            elif window > counting:
                waited.append(counter.seconds)
    except Exception as raised:
        error = raised
    if _failed(item, error, context, log):
        return False
    if log is not None:
        log.progress(item.variant.name, counting + 1 + WAITED_WINDOWS, _all_windows(item, context.spec))
    # A rank that comes early waits for the others; the one that waits least shows what the transfer takes.
    item.waited = context.ranks.min(waited)
    return True


def _beside_the_formula(counted: Communication, item: _Run, truth: _Truth, spec: RunSpec) -> Communication:
    """What was counted, on rank 0 with what it should be."""
    if not truth.sizes:
        return counted
    groups: Sequence[int] | None = getattr(item.engine, "groups", None)
    expected = expected_communication(
        item.variant, spec, parameters=sum(truth.sizes), tensors=truth.sizes, fsdp_groups=groups
    )
    return replace(counted, expected=expected)


def _result(item: _Run, spec: RunSpec, truth: _Truth, *, status: str) -> VariantResult:
    errors = [step.update_error for step in item.steps if step.update_error is not None]
    timed = item.times[min(spec.warmup, max(len(item.times) - 1, 0)) :]
    return VariantResult(
        name=item.variant.name,
        status="done" if status == "done" else "unfinished",
        parity=Parity(
            steps=tuple(item.steps),
            largest_error=max(errors) if errors else None,
            tolerance=tolerance_of(item.variant, spec, truth.rounding),
            first_difference=item.first_difference,
        ),
        communication=item.communication,
        speed=speed_of(timed, item.waited) if timed else None,
    )
