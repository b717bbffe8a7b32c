"""What a variant needs: the peak of a process that trains nothing else, and the tensors that it holds.

On a CPU the peak is that of the resident memory, over what the process held before the model was built, when a tiny
one had loaded all code; on CUDA what torch's allocator handed out and what it kept. Gradients are looked at right
before the update, where there are most.
"""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from ds_accum.compare.estimates import estimated_memory
from ds_accum.compare.result import Memory, VariantResult
from ds_accum.compare.spec import Variant, Workload
from ds_accum.compare.worker.engines import Context, start
from ds_accum.compare.worker.engines.deepspeed_tensors import parameter_sizes
from ds_accum.compare.worker.job import EventLog, Job
from ds_accum.compare.worker.parity import batches_of
from ds_accum.compare.worker.watch import Watch

__all__ = ["run", "size_of"]

WINDOWS = 3
"""Enough for every buffer to be there: ZeRO-3 fetches ahead from the second on."""


def run(job: Job, context: Context, log: EventLog | None) -> None:
    """Measures the job's only variant and reports it. Raises OutOfStepError where ranks part."""
    (variant,) = job.chosen
    if log is not None:
        log.started(variant.name)
    memory, error = None, None
    sizes: list[int] = []
    try:
        memory, sizes = _measure(job, context, log)
    except Exception as raised:
        error = raised
    why = context.ranks.failure(error)
    if log is not None and (why is not None or memory is None):
        log.failed(variant.name, why or "nothing was measured")
    if why is not None or memory is None:
        return
    largest = context.ranks.max([float(value) for value in memory])
    if log is None:
        return
    peak, reserved, parameters, gradients, optimizer_state = (int(value) for value in largest)
    log.result(
        VariantResult(
            name=variant.name,
            status="done",
            memory=Memory(
                peak=peak,
                reserved=reserved if context.ranks.device.type == "cuda" else None,
                parameters=parameters,
                gradients=gradients,
                optimizer_state=optimizer_state,
                estimate=estimated_memory(variant, context.spec, tensors=sizes),
            ),
        )
    )


def _measure(job: Job, context: Context, log: EventLog | None) -> tuple[tuple[int, int, int, int, int], list[int]]:
    """Peak, reserved, parameters, gradients, optimizer state of this rank, in bytes; elements of each parameter."""
    (variant,) = job.chosen
    _load_everything(variant, context)
    gc.collect()
    peak = _Peak(context.ranks.device)
    engine = start(variant, context)
    seen: list[int] = []
    for window in range(WINDOWS):
        watch = Watch(context.ranks.device, before_update=lambda: seen.append(size_of(engine.held().gradients)))
        engine.train_window(batches_of(variant, engine, window, context), watch)
        if log is not None:
            log.progress(variant.name, window + 1, WINDOWS)
    highest, reserved = peak.reached()
    held = engine.held()
    sizes = parameter_sizes(engine.training.model)
    return (highest, reserved, size_of(held.parameters), max(seen, default=0), size_of(held.optimizer_state)), sizes


def _load_everything(variant: Variant, context: Context) -> None:
    """One window of the same engine on a tiny model: what it imports is not what the training needs."""
    tiny = Workload(layers=1, width=8, heads=1, vocabulary=8, sequence_length=8)
    warming = Context(spec=replace(context.spec, workload=tiny), ranks=context.ranks)
    engine = start(variant, warming)
    engine.train_window(batches_of(variant, engine, 0, warming), Watch(context.ranks.device))
    engine.close()


def size_of(tensors: Sequence[Tensor]) -> int:
    """Bytes of the storages behind some tensors, each counted once."""
    storages = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


class _Peak:
    """The most memory in use since this was made, over what was in use then."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self._before = torch.cuda.memory_allocated(device)
        else:
            _forget_peak()
            self._before = _resident("VmRSS")

    def reached(self) -> tuple[int, int]:
        """The peak, and what torch's allocator has reserved (0 on a CPU), in bytes."""
        if self._device.type == "cuda":
            allocated = torch.cuda.max_memory_allocated(self._device) - self._before
            return allocated, torch.cuda.max_memory_reserved(self._device)
        return max(0, _resident("VmHWM") - self._before), 0


def _forget_peak() -> None:
    """Linux only: the highest resident memory starts again from what it is now; while importing it was more."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def _resident(field: str) -> int:
    """Resident memory in bytes: VmRSS now, VmHWM at its highest; elsewhere than on Linux the highest for both."""
    try:
        for line in Path("/proc/self/status").read_text("utf-8").splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024
    except OSError:
        pass
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest if sys.platform == "darwin" else highest * 1024
