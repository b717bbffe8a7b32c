"""What each stage computes, and in which order: the instructions of one accumulation window.

One rule makes four of the six orders. A stage does its forwards and its backwards each in a fixed sequence; it starts
with `warmup` forwards, then does one forward and one backward in turn until no forward is left, then the backwards that
remain. With n = v x m passes on a stage (m micro-batches through each of v chunks), on stage s of p:

    gpipe          warmup = n
    1f1b           warmup = min(n, p - 1 - s)
    interleaved    warmup = min(n, (v - 1) p + 2 (p - 1 - s))
    zero-bubble    warmup = min(n, (v - 1) p + p - 1 - s), and the gradients of the weights follow s backwards later

With v > 1 the k-th forward is that of chunk (k // p) mod v, the k-th backward that of chunk v - 1 - (k // p) mod v: p
micro-batches pass a chunk before the next chunk has its turn. The two V-shaped orders are in `v_orders`.

The orders are those of the schedules that run: DeepSpeed 0.19.8 `TrainSchedule` (deepspeed/runtime/pipe/schedule.py)
and torch 2.13 torch/distributed/pipelining/schedules.py; tests compare with both.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ds_accum.batch.wording import require_integer
from ds_accum.errors import UsageError
from ds_accum.plan.pipeline.shape import PipelineShape

__all__ = ["Instruction", "Part", "instruction_order"]


class Part(Enum):
    """What is computed of a micro-batch: the forward, and the backward whole or in its two parts."""

    FORWARD = "forward"
    BACKWARD = "backward"
    BACKWARD_INPUT = "backward input"
    BACKWARD_WEIGHT = "backward weight"


class Instruction(NamedTuple):
    """One pass of one micro-batch through one chunk of a stage.

    `with_next` joins a forward with the backward after it: they run together (DualPipeV), so that the communication of
    each is hidden behind the computation of the other. A named tuple, since a large pipeline has half a million.
    """

    part: Part
    micro_batch: int
    chunk: int = 0
    with_next: bool = False


def instruction_order(shape: PipelineShape, stage: int) -> tuple[Instruction, ...]:
    """What one stage computes in one accumulation window. Raises UsageError where there is no such stage."""
    require_integer(stage, name="stage", minimum=0, error=UsageError)
    if stage >= shape.stages:
        raise UsageError(
            f"there is no stage {stage} in a pipeline of {shape.stages}", remedy=f"use 0 to {shape.stages - 1}"
        )
    if shape.kind.placement == "v":
        from ds_accum.plan.pipeline import v_orders  # it builds on this module

        return v_orders.ORDERS[shape.schedule](shape, stage)
    return _turn_about(shape, stage)


def _turn_about(shape: PipelineShape, stage: int) -> tuple[Instruction, ...]:
    p, v, n = shape.stages, shape.virtual_stages, shape.virtual_stages * shape.micro_batches
    split = shape.kind.splits_backward
    forwards = [Instruction(Part.FORWARD, *_pass(k, p, v)) for k in range(n)]
    backward = Part.BACKWARD_INPUT if split else Part.BACKWARD
    last = [(micro_batch, v - 1 - chunk) for micro_batch, chunk in (_pass(k, p, v) for k in range(n))]
    backwards = [Instruction(backward, *at) for at in last]
    weights = [Instruction(Part.BACKWARD_WEIGHT, *at) for at in last] if split else []

    warmup = _warmup(shape, stage)
    order = forwards[:warmup]
    for k in range(n):
        order += forwards[warmup + k : warmup + k + 1]
        order.append(backwards[k])
        if split and k >= stage:
            order.append(weights[k - stage])
    return (*order, *weights[max(0, n - stage) :])


def _warmup(shape: PipelineShape, stage: int) -> int:
    """The forwards that a stage does before it takes turns."""
    p, v, n = shape.stages, shape.virtual_stages, shape.virtual_stages * shape.micro_batches
    hops = p - 1 - stage
    by_schedule = {"gpipe": n, "1f1b": hops, "interleaved": (v - 1) * p + 2 * hops, "zero-bubble": (v - 1) * p + hops}
    return min(n, by_schedule[shape.schedule])


def _pass(k: int, p: int, v: int) -> tuple[int, int]:
    """Micro-batch and chunk of the k-th pass of a stage."""
    if v == 1:
        return k, 0
    group, within = divmod(k, p * v)
    return group * p + within % p, within // p
