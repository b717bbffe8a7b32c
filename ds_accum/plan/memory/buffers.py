"""Buffers: the buckets that gradients travel in, ZeRO-Offload's staging, and what sequence parallelism adds.

B elements of the reduce bucket, w bytes of what it holds, c bytes of the dtype that is sent, P elements of the rank:

    ZeRO-0           c min(P, 5e8): gradients flattened to be sent, nothing alone      runtime/engine.py:3796
    BF16_Optimizer   c P where the dtype sent is not that of accumulation              runtime/engine.py:3801
    ZeRO-1, ZeRO-2   w B, twice with overlap_comm, whatever the model's size           stage_1_and_2.py:3266
                     + w min(P, B) flattened, + c min(P, B) where c is another dtype   stage_1_and_2.py:2367, 2377
    ZeRO-3           c B, always                                                       stage3.py:782
                     + c min(P, B) interleaved for the reduce-scatter                  coalesced_collectives.py:122
    offloaded        e x the largest tensor, on both sides (ZeRO-1 and ZeRO-2)         stage_1_and_2.py:653, 659
    on NVMe          in the host's memory 4 x 4 min(P/D, 1e9) for the optimizer, 5 e 1e8 for parameters

Parameters are gathered in place after the step (runtime/utils.py:1008): `allgather_bucket_size` needs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.batch import ParallelLayout
from ds_accum.plan.memory.gradients import SUB_GROUP, during_backward
from ds_accum.plan.memory.holdings import Holdings
from ds_accum.plan.memory.line import ALWAYS, Line, Moment, make_line
from ds_accum.plan.memory.optimizer_state import place_of_state, uses_bf16_optimizer
from ds_accum.plan.training import ELEMENT_BYTES, Dtype, TrainingSetup, sent_dtype

__all__ = ["buffer_lines"]

_FILE = "DeepSpeed 0.19.8, runtime/"
_STAGE_0_BUCKET = 500_000_000
"""Elements; no key sets it (runtime/engine.py:151)."""

# `buffer_count` of offload_optimizer and of offload_param, and `buffer_size` (runtime/zero/offload_config.py).
_OPTIMIZER_BUFFERS, _PARAMETER_BUFFERS, _PARAMETER_BUFFER = 4, 5, 100_000_000

_BACKWARD: tuple[Moment, ...] = ("backward", "reduction")
_AT_THE_END: tuple[Moment, ...] = ("reduction",)


def buffer_lines(held: Holdings, layout: ParallelLayout, training: TrainingSetup) -> Iterator[Line]:
    """The buffers of one rank."""
    has_pipeline = layout.pipeline_parallel_size > 1
    sent_in = sent_dtype(layout, training)
    if uses_bf16_optimizer(training, has_pipeline=has_pipeline):
        yield from _bf16_optimizer(held, training, sent_in)
    elif training.zero_stage == 0:
        yield from _stage_0(held, training, sent_in)
    elif training.zero_stage == 3:
        yield from _stage_3(held, training, sent_in)
    else:
        yield from _stage_1_or_2(held, training, sent_in)
    if training.zero_stage in (1, 2) and place_of_state(training) == "host":
        yield from _staging(held, training)
    if training.zero_stage == 3:
        yield from _nvme(held, training)
    if training.megatron_sequence_parallel and layout.tensor_parallel_size > 1:
        yield _sequence_parallel(held, training)


def _stage_0(held: Holdings, training: TrainingSetup, sent_in: Dtype) -> Iterator[Line]:
    if held.shards > 1:
        sent = ELEMENT_BYTES[sent_in]
        size = training.element_bytes
        each = size + (sent if sent_in != training.dtype else 0)
        yield make_line(
            "buffers",
            "gradients flattened to be reduced",
            each * min(held.elements, _STAGE_0_BUCKET),
            "{each} B x min({elements}, {bucket} in a bucket)",
            f"{_FILE}engine.py:3796",
            moments=_AT_THE_END,
            each=each,
            elements=held.elements,
            bucket=_STAGE_0_BUCKET,
        )


def _bf16_optimizer(held: Holdings, training: TrainingSetup, sent_in: Dtype) -> Iterator[Line]:
    if sent_in != training.accumulation_dtype and held.shards > 1:
        sent = ELEMENT_BYTES[sent_in]
        yield make_line(
            "buffers",
            f"gradients in {sent_in} to be reduced",
            sent * held.flat,
            "{sent} B x {flat}, at once whatever the bucket",
            f"{_FILE}engine.py:3801",
            moments=_AT_THE_END,
            sent=sent,
            flat=held.flat,
        )


def _stage_1_or_2(held: Holdings, training: TrainingSetup, sent_in: Dtype) -> Iterator[Line]:
    is_wide = training.zero_stage == 1 and training.accumulation_dtype != training.dtype
    kept = training.accumulation_dtype if is_wide else training.dtype
    each, sent = ELEMENT_BYTES[kept], ELEMENT_BYTES[sent_in]
    bucket = training.reduce_bucket_size
    buckets = 2 if training.overlaps_communication else 1
    if training.contiguous_gradients:
        # Offloaded, the gradients of other ranks' parts are only let go of by the next forward, and they lie in it.
        stays = is_wide and training.offload_optimizer != "none"
        # ZeRO-1 keeps it from the first micro-batch to the boundary.
        is_kept = training.zero_stage == 1 and training.gradient_accumulation_steps > 1
        when: tuple[Moment, ...] = ("loss", *_BACKWARD) if is_kept else _BACKWARD
        yield make_line(
            "buffers",
            "reduce bucket",
            buckets * each * bucket,
            "{buckets} x {each} B x {bucket}",
            f"{_FILE}zero/stage_1_and_2.py:3266",
            moments=ALWAYS if stays else when,
            buckets=buckets,
            each=each,
            bucket=bucket,
        )
    if held.shards > 1:
        copied = each + (sent if sent_in != kept else 0)
        # ZeRO-1 without overlap_comm reduces when the backward is over.
        is_early = training.zero_stage == 2 or training.overlaps_communication
        yield make_line(
            "buffers",
            "reduce bucket, flattened to be sent",
            copied * min(held.elements, bucket),
            "{copied} B x min({elements}, {bucket} in a bucket)",
            f"{_FILE}zero/stage_1_and_2.py:2367",
            moments=during_backward(held, training) if is_early else _AT_THE_END,
            copied=copied,
            elements=held.elements,
            bucket=bucket,
        )
    yield from _largest_gradient(held, training, f"{_FILE}zero/stage_1_and_2.py:1449")


def _stage_3(held: Holdings, training: TrainingSetup, sent_in: Dtype) -> Iterator[Line]:
    sent, bucket = ELEMENT_BYTES[sent_in], training.reduce_bucket_size
    if training.contiguous_gradients:
        yield make_line(
            "buffers",
            "reduce bucket",
            sent * bucket,
            "{sent} B x {bucket}",
            f"{_FILE}zero/stage3.py:782",
            sent=sent,
            bucket=bucket,
        )
    if held.shards > 1:
        yield make_line(
            "buffers",
            "reduce bucket, interleaved for the reduce-scatter",
            sent * min(held.elements, bucket),
            "{sent} B x min({elements}, {bucket} in a bucket)",
            f"{_FILE}comm/coalesced_collectives.py:122",
            moments=during_backward(held, training),
            sent=sent,
            elements=held.elements,
            bucket=bucket,
        )
    yield from _largest_gradient(held, training, f"{_FILE}zero/stage3.py:1636")


def _largest_gradient(held: Holdings, training: TrainingSetup, source: str) -> Iterator[Line]:
    """A gradient is there before it is copied into the bucket; one beyond the bucket stays until it is reduced."""
    yield make_line(
        "buffers",
        "gradient of the largest tensor, before it is in a bucket",
        training.element_bytes * held.largest,
        "{size} B x {largest}",
        source,
        moments=_BACKWARD,
        size=training.element_bytes,
        largest=held.largest,
    )


def _staging(held: Holdings, training: TrainingSetup) -> Iterator[Line]:
    size = training.element_bytes
    for place in ("device", "host"):
        yield make_line(
            "buffers",
            "staging of offloaded gradients",
            size * held.largest,
            "{size} B x {largest} in the largest tensor",
            f"{_FILE}zero/stage_1_and_2.py:{659 if place == 'device' else 653}",
            place="device" if place == "device" else "host",
            size=size,
            largest=held.largest,
        )
    yield make_line(
        "buffers",
        "staging of updated parameters",
        size * held.flat_partition,
        "{size} B x {partition}",
        f"{_FILE}zero/stage_1_and_2.py:567",
        place="host",
        size=size,
        partition=held.flat_partition,
    )


def _nvme(held: Holdings, training: TrainingSetup) -> Iterator[Line]:
    """What passes between NVMe and the GPU goes through the host's memory, by DeepSpeed's default counts and sizes."""
    if training.offload_optimizer == "nvme":
        largest = min(held.partition, SUB_GROUP)
        yield make_line(
            "buffers",
            "buffers of the optimizer's state",
            _OPTIMIZER_BUFFERS * 4 * largest,
            "{count} x 4 B x min({partition}, {sub_group} in a sub-group)",
            f"{_FILE}swap_tensor/optimizer_utils.py:187",
            place="host",
            count=_OPTIMIZER_BUFFERS,
            partition=held.partition,
            sub_group=SUB_GROUP,
        )
    if training.offload_parameters == "nvme":
        size = training.element_bytes
        yield make_line(
            "buffers",
            "buffers of parameters",
            _PARAMETER_BUFFERS * size * _PARAMETER_BUFFER,
            "{count} x {size} B x {elements}",
            f"{_FILE}swap_tensor/partitioned_param_swapper.py:124",
            place="host",
            count=_PARAMETER_BUFFERS,
            size=size,
            elements=_PARAMETER_BUFFER,
        )


def _sequence_parallel(held: Holdings, training: TrainingSetup) -> Line:
    """What every tensor-parallel rank holds whole has seen only its part of the sequence: its gradients are summed
    over those ranks, flattened into one tensor, or accumulated in a buffer of their own until the boundary."""
    each = ELEMENT_BYTES[training.accumulation_dtype]
    is_deferred = training.sequence_norm_gradients == "deferred"
    return make_line(
        "buffers",
        "gradients of norms under sequence parallelism" + (", kept for the boundary" if is_deferred else ""),
        each * held.replicated,
        "{each} B x {replicated} in what every tensor-parallel rank holds whole",
        "Megatron-LM, megatron/core/distributed/finalize_model_grads.py (flattened and all-reduced)",
        moments=ALWAYS if is_deferred else _AT_THE_END,
        each=each,
        replicated=held.replicated,
    )
