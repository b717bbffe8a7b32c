"""A plan as a value for a program: every number, in bytes, seconds and shares, under the names of the library."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ds_accum.plan.cost import PARTS
from ds_accum.plan.ds_config import beyond_the_config, deepspeed_config, launch_degrees, writable_optimizers
from ds_accum.plan.planned import Dropped, Miss, Plan, PlannedLayout
from ds_accum.plan.reasons import advantage_over
from ds_accum.plan.remedies import Remedy
from ds_accum.plan.training import TrainingSetup
from ds_accum.reporting import plain

__all__ = ["plan_value"]


def plan_value(plan: Plan, *, notes: tuple[str, ...] = (), remedies: tuple[Remedy, ...] = ()) -> dict[str, Any]:
    """The whole plan. `version` changes where a key goes or changes its meaning."""
    return {
        "version": 1,
        "model": {"name": plan.shape.name, "parameters": plan.shape.parameters},
        "hardware": plain(plan.hardware),
        "world_size": plan.world_size,
        "sequence_length": plan.sequence_length,
        "global_batch_size": plan.global_batch_size,
        "tokens_per_step": plan.tokens_per_step,
        "training": plain(plan.training),
        "limits": plain(plan.limits),
        "assumptions": plain(plan.assumptions),
        "notes": list(notes),
        "considered": plan.considered,
        "fitting": plan.fitting,
        "layouts": [_layout(planned) for planned in plan.layouts],
        "why": [plain(advantage_over(first, other)) for first, other in pairwise(plan.layouts)],
        "splits": [_layout(planned) for planned in plan.splits],
        "dropped": [_dropped(item) for item in plan.dropped],
        "uneven_data_parallel_sizes": list(plan.uneven_data_parallel_sizes),
        "refused": plain(plan.refused),
        "remedies": [{"change": remedy.change, "best": _layout(remedy.best)} for remedy in remedies],
    }


def _layout(planned: PlannedLayout) -> dict[str, Any]:
    fullest = planned.memory.fullest
    return {
        **_choice(planned),
        "step_seconds": planned.step.step_seconds,
        "seconds_by_part": {part: planned.step.part_seconds(part) for part in PARTS},
        "slowest_stage": planned.step.pipeline_stage,
        "tokens_per_second": planned.tokens_per_second,
        "bubble_share": planned.bubble_share,
        "memory": {
            "peak_bytes": planned.memory.peak_bytes,
            "host_bytes": planned.memory.host_bytes,
            "stage": fullest.stage,
            "moment": fullest.fullest_moment,
            "lines": [
                {
                    "part": line.part,
                    "name": line.name,
                    "bytes": line.bytes,
                    "place": line.place,
                    "formula": line.formula,
                    "source": line.source,
                }
                for line in fullest.lines
                if fullest.fullest_moment in line.moments
            ],
        },
        "sent_bytes": planned.communication.sent_bytes,
        "transfers": [
            {**plain(transfer), "sent_bytes": transfer.sent_bytes} for transfer in planned.communication.transfers
        ],
        "lint": launch_degrees(planned),
        "beyond_the_config": list(beyond_the_config(planned)),
        "deepspeed_config": deepspeed_config(planned) if planned.training.optimizer in writable_optimizers() else None,
    }


def _choice(item: PlannedLayout | Miss) -> dict[str, Any]:
    training: TrainingSetup = item.training
    return {
        "layout": {**plain(item.layout), "data_parallel_size": item.layout.data_parallel_size},
        "micro_batch_size": item.ledger.micro_batch_size,
        "gradient_accumulation_steps": item.ledger.gradient_accumulation_steps,
        "training": plain(training),
    }


def _dropped(item: Dropped) -> dict[str, Any]:
    nearest = None
    if item.nearest is not None:
        nearest = {**_choice(item.nearest), "needed": item.nearest.needed, "available": item.nearest.available}
    return {"reason": item.reason, "count": item.count, "nearest": nearest}
