"""Gradients, in the dtype they really have, and the buffer that accumulating more than one micro-batch adds.

e bytes of the model's dtype, a of the accumulation dtype, P elements, D ranks; read in DeepSpeed 0.19.8.

    ZeRO-0              e P; in the step 4 P in float32                                  fp16/fused_optimizer.py:285
    BF16_Optimizer      e P + a P, both kept, neither cut                                bf16_optimizer.py:191, 612
                        (ZeRO-1 in bfloat16 with float32 accumulation)
    ZeRO-1, a = e       e P until the boundary, then the rank's own                      stage_1_and_2.py:2192
    ZeRO-1, a > e       4 P until the boundary, + 4 P/D                                  stage_1_and_2.py:1237, 1270
    ZeRO-2, a = e       e P/D, twice where more than one micro-batch is accumulated      stage_1_and_2.py:2192, 1042
    ZeRO-2, a > e       4 P/D                                                            stage_1_and_2.py:1270
    ZeRO-3              a P/D, always                                                    stage3.py:791
    offloaded           in the host's memory 4 P/D; with more than one micro-batch       stage_1_and_2.py:937, 1824
                        ZeRO-2's e P/D, and ZeRO-3's a P/D in any case

Where a tensor reaches into a rank's part of ZeRO-1's or ZeRO-2's flat tensor, its gradient is kept whole: with many
ranks and few large tensors that is much more than P/D.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ds_accum.plan.memory.holdings import Holdings
from ds_accum.plan.memory.line import Line, Moment, make_line
from ds_accum.plan.memory.optimizer_state import place_of_state, uses_bf16_optimizer
from ds_accum.plan.training import ELEMENT_BYTES, TrainingSetup

__all__ = ["SUB_GROUP", "during_backward", "gradient_lines"]

_FILE = "DeepSpeed 0.19.8, runtime/"
_FUSED = ("adam", "adamw")
"""Optimizers that DeepSpeed has a fused form of, whose gradients are flattened (runtime/engine.py:2562)."""

SUB_GROUP = 1_000_000_000
"""Elements that ZeRO-3 updates at once: `sub_group_size` (runtime/zero/config.py)."""


def gradient_lines(held: Holdings, training: TrainingSetup, *, has_pipeline: bool) -> Iterator[Line]:
    """The gradients of one rank."""
    accumulates = training.gradient_accumulation_steps > 1
    whole: tuple[Moment, ...] = ("loss", "backward", "reduction") if accumulates else ("reduction",)
    if uses_bf16_optimizer(training, has_pipeline=has_pipeline):
        yield from _bf16_optimizer(held, training, whole)
    elif training.zero_stage == 0:
        yield from _stage_0(held, training, whole)
    elif training.zero_stage == 3:
        yield from _stage_3(held, training)
    else:
        yield from _stage_1_or_2(held, training, whole)


def _stage_0(held: Holdings, training: TrainingSetup, whole: tuple[Moment, ...]) -> Iterator[Line]:
    size = training.element_bytes
    yield make_line(
        "gradients",
        "gradients",
        size * held.elements,
        "{size} B x {elements}",
        f"{_FILE}engine.py:3095",
        moments=(*whole, "conversion") if size < 4 else (*whole, "conversion", "update"),
        size=size,
        elements=held.elements,
    )
    if size < 4:
        source = f"{_FILE}fp16/{_wrapper(training)}"
        yield _in_float32(held.elements, source)
        if training.optimizer in _FUSED:
            yield make_line(
                "gradients",
                "the same, before they are flattened",
                4 * held.elements,
                "4 B x {elements}",
                source,
                moments=("conversion",),
                elements=held.elements,
            )


def _wrapper(training: TrainingSetup) -> str:
    return "fused_optimizer.py:285" if training.optimizer in _FUSED else "unfused_optimizer.py:222"


def _bf16_optimizer(held: Holdings, training: TrainingSetup, whole: tuple[Moment, ...]) -> Iterator[Line]:
    size, accumulated = training.element_bytes, ELEMENT_BYTES[training.accumulation_dtype]
    yield make_line(
        "gradients",
        "gradients of a micro-batch, zeroed but not freed",
        size * held.elements,
        "{size} B x {elements}",
        f"{_FILE}bf16_optimizer.py:612",
        moments=(*whole, "conversion", "update"),
        size=size,
        elements=held.elements,
    )
    yield make_line(
        "gradients",
        f"gradients accumulated in {training.accumulation_dtype}",
        accumulated * held.flat,
        "{accumulated} B x {elements} (padded to {flat}), whole on every rank",
        f"{_FILE}bf16_optimizer.py:191",
        accumulated=accumulated,
        elements=held.elements,
        flat=held.flat,
    )
    if accumulated < 4:
        yield _in_float32(held.flat_partition, f"{_FILE}bf16_optimizer.py:417")


def _stage_1_or_2(held: Holdings, training: TrainingSetup, whole: tuple[Moment, ...]) -> Iterator[Line]:
    size, offloads = training.element_bytes, training.offload_optimizer != "none"
    is_separate = training.accumulation_dtype != training.dtype
    accumulated = ELEMENT_BYTES[training.accumulation_dtype]
    accumulates = training.gradient_accumulation_steps > 1
    if training.zero_stage == 1:
        each = accumulated if is_separate else size
        yield make_line(
            "gradients",
            "gradients, whole until the boundary",
            each * held.elements,
            "{each} B x {elements}",
            f"{_FILE}zero/stage_1_and_2.py:{1237 if is_separate else 2293}",
            moments=whole,
            each=each,
            elements=held.elements,
        )
    own: tuple[Moment, ...] = (*(whole if training.zero_stage == 2 else ("reduction",)), "conversion")
    if is_separate:
        yield make_line(
            "gradients",
            f"gradients of this rank's part in {training.accumulation_dtype}",
            accumulated * held.flat_partition,
            "{accumulated} B x {partition} of {elements} / {shards} ranks",
            f"{_FILE}zero/stage_1_and_2.py:1270",
            moments=(*own, "update"),
            accumulated=accumulated,
            partition=held.flat_partition,
            elements=held.elements,
            shards=held.shards,
        )
    elif not offloads:
        yield from _own_gradients(held, training, own)
    if offloads:
        yield from _offloaded(held, training, copies=training.zero_stage == 2 and accumulates and not is_separate)


def _own_gradients(held: Holdings, training: TrainingSetup, own: tuple[Moment, ...]) -> Iterator[Line]:
    """Where the dtypes are the same: whole tensors, and flattened once more for the step, experts by themselves."""
    size, touched = training.element_bytes, held.touched
    template = "{size} B x {touched} in the tensors that reach into {partition} of {elements} / {shards} ranks"
    numbers: dict[str, Any] = {
        "size": size,
        "touched": touched,
        "partition": held.flat_partition,
        "elements": held.elements,
        "shards": held.shards,
    }
    source = f"{_FILE}zero/stage_1_and_2.py:2192"
    name = "gradients of this rank's part"
    yield make_line("gradients", name, size * touched, template, source, moments=own, **numbers)
    if training.zero_stage == 2 and training.gradient_accumulation_steps > 1:
        yield make_line(
            "gradients",
            "the same of the next micro-batch, before they are added",
            size * touched,
            template,
            f"{_FILE}zero/stage_1_and_2.py:1042",
            moments=during_backward(held, training),
            **numbers,
        )
    yield make_line(
        "gradients",
        "gradients of this rank's part, flattened",
        size * held.largest_flat_partition,
        "{size} B x {partition}",
        f"{_FILE}zero/stage_1_and_2.py:3114",
        # In float32 it is the optimizer's own.
        moments=("conversion",) if size < 4 else ("conversion", "update"),
        size=size,
        partition=held.largest_flat_partition,
    )
    if size < 4:
        yield _in_float32(held.largest_flat_partition, f"{_FILE}zero/stage_1_and_2.py:3118")


def _offloaded(held: Holdings, training: TrainingSetup, *, copies: bool) -> Iterator[Line]:
    yield make_line(
        "gradients",
        "gradients in float32",
        4 * held.flat_partition,
        "4 B x {partition} of {elements} / {shards} ranks",
        f"{_FILE}zero/stage_1_and_2.py:937",
        place="host",
        partition=held.flat_partition,
        elements=held.elements,
        shards=held.shards,
    )
    if copies:
        yield make_line(
            "gradients",
            "gradients accumulated so far",
            training.element_bytes * held.touched,
            "{size} B x {touched} in the tensors that reach into this rank's part",
            f"{_FILE}zero/stage_1_and_2.py:1824",
            place="host",
            size=training.element_bytes,
            touched=held.touched,
        )


def _stage_3(held: Holdings, training: TrainingSetup) -> Iterator[Line]:
    accumulated, offloads = ELEMENT_BYTES[training.accumulation_dtype], training.offload_optimizer != "none"
    template = "{each} B x {partition} of {elements} / {shards} ranks"
    numbers: dict[str, Any] = {"partition": held.partition, "elements": held.elements, "shards": held.shards}
    yield make_line(
        "gradients",
        f"gradients of this rank's part in {training.accumulation_dtype}",
        accumulated * held.partition,
        template,
        f"{_FILE}zero/stage3.py:791",
        place="host" if offloads else "device",
        each=accumulated,
        **numbers,
    )
    if offloads:
        yield make_line(
            "gradients",
            "gradients in float32",
            4 * held.partition,
            template,
            f"{_FILE}zero/stage3.py:1338",
            place=place_of_state(training),
            each=4,
            **numbers,
        )
        return
    updated = min(held.partition, SUB_GROUP)
    yield make_line(
        "gradients",
        "gradients of a sub-group, flattened",
        accumulated * updated,
        "{each} B x min({partition}, {sub_group} in a sub-group)",
        f"{_FILE}zero/stage3.py:2686",
        # In float32 it is the optimizer's own.
        moments=("conversion",) if accumulated < 4 else ("conversion", "update"),
        each=accumulated,
        partition=held.partition,
        sub_group=SUB_GROUP,
    )
    if accumulated < 4:
        yield _in_float32(updated, f"{_FILE}zero/stage3.py:2686")


def during_backward(held: Holdings, training: TrainingSetup) -> tuple[Moment, ...]:
    """When a bucket is full: before the end of the backward only where the gradients don't fit into one."""
    return ("backward", "reduction") if held.elements > training.reduce_bucket_size else ("reduction",)


def _in_float32(elements: int, source: str) -> Line:
    return make_line(
        "gradients",
        "gradients in float32, for the update",
        4 * elements,
        "4 B x {elements}",
        source,
        moments=("conversion", "update"),
        elements=elements,
    )
