"""Parameters: what the model computes with, and what ZeRO-3 gathers of it.

    ZeRO-0      e P                     ZeRO-3    e P/D, each tensor padded
    ZeRO-1, 2   e P, padded                       + e x tensors up to the persistence threshold, whole
                                                  + e x what is gathered at once: max(live, largest tensor)

e bytes an element, P elements on the rank before ZeRO cuts them, D ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ds_accum.plan.memory.holdings import Holdings
from ds_accum.plan.memory.line import Line, Place, make_line
from ds_accum.plan.training import TrainingSetup

__all__ = ["parameter_lines"]

_STAGE_1_AND_2 = "DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py:509"
_STAGE_3 = "DeepSpeed 0.19.8, runtime/zero/stage3.py:972"
_OFFLOADED = "DeepSpeed 0.19.8, runtime/zero/stage3.py:900"
_MOST_IN_HOST = 1_000_000_000
"""Elements: `max_in_cpu` of offload_param (runtime/zero/offload_config.py)."""

_COORDINATOR = "DeepSpeed 0.19.8, runtime/zero/partitioned_param_coordinator.py:453"
_PERSISTENT = "DeepSpeed 0.19.8, runtime/zero/parameter_offload.py:317"


def parameter_lines(held: Holdings, training: TrainingSetup) -> Iterator[Line]:
    """The parameters of one rank in the model's dtype."""
    size = training.element_bytes
    if training.zero_stage == 3:
        yield from _partitioned(held, training, size)
    elif training.zero_stage:
        yield make_line(
            "parameters",
            "parameters",
            size * held.flat,
            "{size} B x {elements} (padded to {flat})",
            _STAGE_1_AND_2,
            size=size,
            elements=held.elements,
            flat=held.flat,
        )
    else:
        yield make_line(
            "parameters",
            "parameters",
            size * held.elements,
            "{size} B x {elements}",
            "ZeRO-0 replicates them; Rajbhandari et al. 2020, arXiv 1910.02054, section 3",
            size=size,
            elements=held.elements,
        )


def _partitioned(held: Holdings, training: TrainingSetup, size: int) -> Iterator[Line]:
    template = "{size} B x {kept} of {elements} / {shards} ranks"
    numbers: dict[str, Any] = {"size": size, "elements": held.elements, "shards": held.shards}
    for place, part in _places(held, training).items():
        yield make_line(
            "parameters",
            "parameters, this rank's part",
            size * part,
            template,
            _STAGE_3 if place == "device" else _OFFLOADED,
            place=place,
            kept=part,
            **numbers,
        )
    persistent = held.persistent(training.param_persistence_threshold)
    if persistent:
        yield make_line(
            "parameters",
            "small parameters, kept whole",
            size * persistent,
            "{size} B x {persistent} in tensors of up to {threshold}",
            _PERSISTENT,
            # In the step they are cut as all others.
            moments=("loss", "backward", "reduction"),
            size=size,
            persistent=persistent,
            threshold=training.param_persistence_threshold,
        )
    gathered = min(held.elements - persistent, max(training.max_live_parameters, held.largest))
    if gathered:
        yield make_line(
            "parameters",
            "parameters gathered and prefetched",
            size * gathered,
            "{size} B x min({rest} not kept whole, max({live} live, {largest} in the largest tensor))",
            _COORDINATOR,
            moments=("loss", "backward", "reduction"),
            size=size,
            rest=held.elements - persistent,
            live=training.max_live_parameters,
            largest=held.largest,
        )


def _places(held: Holdings, training: TrainingSetup) -> dict[Place, int]:
    """Elements of this rank's part, by where they are kept. Not all goes to NVMe: the host keeps `max_in_cpu`."""
    if training.offload_parameters == "nvme":
        in_host = min(held.partition, _MOST_IN_HOST)
        return {"host": in_host, **({"nvme": held.partition - in_host} if held.partition > in_host else {})}
    return {"host" if training.offload_parameters == "cpu" else "device": held.partition}
