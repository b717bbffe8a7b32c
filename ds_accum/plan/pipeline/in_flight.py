"""How many micro-batches' activations a stage holds at once: what a pipeline costs in memory.

A pass through a chunk holds its activations from its forward to the end of its backward; where the backward is in two
parts, to the end of the gradient of the weights. Of stage s of p, with m micro-batches and v chunks, in passes of a
chunk (1 / v of a stage's layers):

    gpipe          m
    1f1b           min(m, p - s)
    interleaved    min(v m, (v - 1) p + 2 (p - 1 - s) + 1)
    zero-bubble    min(v m, v p)
    zero-bubble-v  min(2 m, 2 p, m + 1 + s)
    dualpipev      2 p + 1

On stage 0 interleaved holds p (1 + (p - 1) / (p v)) micro-batches: Korthikanti et al. 2022, arXiv 2205.05198, section
4.2.3. The last two are those of Qi et al. 2023 (arXiv 2401.10241, ZB-V) and of DeepSeek-AI's DualPipe repository
(PP + 1 of 2 p chunks). Tests count them in the orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ds_accum.errors import UsageError
from ds_accum.plan.pipeline.orders import Instruction, Part
from ds_accum.plan.pipeline.shape import PipelineShape

__all__ = ["activation_bytes", "micro_batches_in_flight", "passes_in_flight", "peak_in_flight"]


def peak_in_flight(order: Sequence[Instruction]) -> int:
    """The most passes whose activations are held at once, in the order of one stage."""
    held = peak = 0
    for instruction in order:
        if instruction.part is Part.FORWARD:
            held += 1
            peak = max(peak, held)
        elif instruction.part is not Part.BACKWARD_INPUT:
            held -= 1
    return peak


def passes_in_flight(shape: PipelineShape, stage: int) -> int:
    """The same by formula, for any number of micro-batches."""
    p, m, v = shape.stages, shape.micro_batches, shape.virtual_stages
    if shape.schedule == "gpipe":
        return m
    if shape.schedule == "1f1b":
        return min(m, p - stage)
    if shape.schedule == "interleaved":
        return min(v * m, (v - 1) * p + 2 * (p - 1 - stage) + 1)
    if shape.schedule == "dualpipev":
        return 2 * p + 1
    if shape.schedule == "zero-bubble-v":
        return min(2 * m, 2 * p, m + 1 + stage)
    return min(v * m, v * p)


def micro_batches_in_flight(shape: PipelineShape, stage: int) -> Fraction:
    """The most micro-batches whose activations a stage holds at once; a pass through one of v chunks counts 1 / v.

    Raises UsageError where there is no such stage.
    """
    if not 0 <= stage < shape.stages:
        raise UsageError(
            f"there is no stage {stage} in a pipeline of {shape.stages}", remedy=f"use 0 to {shape.stages - 1}"
        )
    return Fraction(passes_in_flight(shape, stage), shape.virtual_stages)


def activation_bytes(in_flight: Fraction, per_micro_batch_bytes: int) -> int:
    """What is held of activations, where one micro-batch leaves `per_micro_batch_bytes` on the stage; rounded up."""
    return -(-in_flight.numerator * per_micro_batch_bytes // in_flight.denominator)
