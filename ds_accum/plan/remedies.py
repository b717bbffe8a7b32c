"""What would make a layout fit where none does: each change is tried alone, and said only if it helps.

remedies_for(plan)                       # ("allow offload to the host: ...", "use 32 GPUs: ...")
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ds_accum.errors import DSAccumError
from ds_accum.plan.hardware import Hardware, hardware_names, read_hardware
from ds_accum.plan.layouts import Limits
from ds_accum.plan.planned import Plan, PlannedLayout
from ds_accum.plan.search import plan_batch

__all__ = ["Remedy", "remedies_for"]

_MOST_DOUBLINGS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """One change, as a clause that can follow "to make it fit, ...", and the best layout that it allows."""

    change: str
    best: PlannedLayout


def remedies_for(plan: Plan) -> tuple[Remedy, ...]:
    """The changes that help, those that cost no hardware first."""
    found = []
    for change, limits in _wider_limits(plan.limits):
        found += _tried(plan, change, limits=limits)
    found += next(filter(None, _with_more_gpus(plan)), [])
    found += next(filter(None, _with_larger_gpus(plan)), [])
    return tuple(found)


def _wider_limits(limits: Limits) -> Iterator[tuple[str, Limits]]:
    if "full" not in limits.recompute:
        yield "allow full recompute", replace(limits, recompute=(*limits.recompute, "full"))
    if limits.zero_stages != (0, 1, 2, 3):
        yield "allow every ZeRO stage", replace(limits, zero_stages=(0, 1, 2, 3))
    if not limits.offload:
        yield "allow offload to the memory of the host", replace(limits, offload=True)
    if limits.max_bubble is not None:
        yield "allow any bubble", replace(limits, max_bubble=None)
    for name in ("tensor", "pipeline", "sequence", "expert"):
        field = f"max_{name}_parallel_size"
        if getattr(limits, field) is not None:
            yield f"lift the limit of {name} parallel", replace(limits, **{field: None})  # type: ignore[arg-type]


def _with_more_gpus(plan: Plan) -> Iterator[list[Remedy]]:
    for doubling in range(1, _MOST_DOUBLINGS + 1):
        world_size = plan.world_size * 2**doubling
        yield _tried(plan, f"use {world_size} GPUs", world_size=world_size)


def _with_larger_gpus(plan: Plan) -> Iterator[list[Remedy]]:
    kinds = [read_hardware(name) for name in hardware_names()]
    larger = [kind for kind in kinds if kind.memory_bytes > plan.hardware.memory_bytes]
    for kind in sorted(larger, key=lambda kind: (kind.memory_bytes, kind.name)):
        yield _tried(plan, f"use {kind.name}", hardware=kind)


def _tried(
    plan: Plan,
    change: str,
    *,
    limits: Limits | None = None,
    world_size: int | None = None,
    hardware: Hardware | None = None,
) -> list[Remedy]:
    """The remedy if the change makes something fit, else nothing."""
    try:
        changed = plan_batch(
            shape=plan.shape,
            hardware=hardware or plan.hardware,
            world_size=world_size or plan.world_size,
            sequence_length=plan.sequence_length,
            global_batch_size=plan.global_batch_size,
            training=plan.training,
            limits=limits or plan.limits,
            assumptions=plan.assumptions,
            most=1,
        )
    except DSAccumError:  # the batch does not divide, or that GPU has not the dtype
        return []
    return [Remedy(change=change, best=changed.layouts[0])] if changed.layouts else []
