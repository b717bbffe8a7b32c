"""Formulas: the collectives that one optimizer step of a variant should make, by kind and moment.

    expected_communication(variant, spec, parameters=17_376)  ->  (CollectiveCount(kind="all-reduce", ...), ...)

P parameters of e bytes on N ranks, A micro-batches a step. Calls are those of one rank, bytes those of the tensors
that it passes in. Read in DeepSpeed 0.19.8 and checked against counts of real runs; DDP and FSDP2 read in torch 2.13.

    stage 0          boundary: all-reduce P e
    stage 1          boundary: all-reduce P e                    step: all-gather P/N e
    stage 2          each micro-batch: all-reduce P e            step: all-gather P/N e
    stage 3          each micro-batch: all-gather P/N e and reduce-scatter P e
    ddp, ddp-every   boundary, each micro-batch: all-reduce P e
    fsdp-every       each micro-batch: all-gather P/N e, twice but for the root; reduce-scatter P e
    fsdp             the same with the reduce-scatter at the boundary alone

and the few bytes of the gradient norm, of the overflow check, and of ds-accum's totals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from ds_accum.compare.result import CollectiveCount, CollectiveKind, Moment
from ds_accum.compare.spec import Dtype, RunSpec, Variant

__all__ = ["dtype_of", "expected_communication", "is_coalesced", "totals_moment"]

_ELEMENT_SIZES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp64": 8, "float32": 4, "bfloat16": 2, "float16": 2}

# What ds-accum's totals are: eight float64 a rank; beyond so many ranks, two reductions (ds_accum/engine/totals.py).
_RECORD_BYTES = 64
_EXTREMES_BYTES = 32
_MOST_RANKS_GATHERED = 1024

# torch.nn.parallel.DistributedDataParallel: the first bucket is small, so that reducing starts early.
_DDP_FIRST_BUCKET_BYTES = 1024**2
_DDP_BUCKET_BYTES = 25 * 1024**2

# The fallback that stage 0 reduces with has its own bucket, which no key sets (deepspeed/runtime/engine.py:151).
_STAGE_0_BUCKET = 500_000_000

# Keys of zero_optimization that make a stage communicate in a way that no formula here describes, unless they are off.
_BEYOND_THE_FORMULAS = {
    "mics_shard_size": -1,
    "zenflow": None,
    "zero_hpz_partition_size": 1,
    "zero_quantized_gradients": False,
    "zero_quantized_nontrainable_weights": False,
    "zero_quantized_weights": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """What is reduced and gathered."""

    tensors: Sequence[int]
    """Elements of each parameter, in the order of `model.parameters()`; one entry if only the sum is known."""

    known: bool
    """Whether `tensors` are the real ones."""

    @property
    def elements(self) -> int:
        return sum(self.tensors)

    def buckets(self, limit: int, *, backward: bool) -> int | None:
        """How many buckets of at most `limit` elements the gradients fill; None where the sizes would have to be known.

        A tensor that doesn't fit in what is left closes the bucket; one beyond the limit is alone (DeepSpeed's
        `reduce_independent_p_g_buckets_and_remove_grads`, runtime/zero/stage_1_and_2.py:1422 and stage3.py:1583).
        """
        if self.elements <= limit:
            return 1
        if not self.known:
            return None
        count, filled = 0, 0
        for size in reversed(self.tensors) if backward else self.tensors:
            if filled and filled + size > limit:
                count, filled = count + 1, 0
            filled += size
        return count + 1

    def partition(self, world_size: int) -> int:
        """Elements a rank holds of parameters that are sharded one by one, each padded to a multiple of the ranks."""
        return sum(ceil(size / world_size) for size in self.tensors)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One kind of call in one micro-batch or step."""

    kind: CollectiveKind
    calls: int
    bytes: int


def expected_communication(
    variant: Variant,
    spec: RunSpec,
    *,
    parameters: int,
    tensors: Sequence[int] | None = None,
    fsdp_groups: Sequence[int] | None = None,
) -> tuple[CollectiveCount, ...] | None:
    """Calls and bytes per optimizer step and rank, in the steady state; None where no formula here gives them.

    `parameters` is the number of trainable ones. `tensors` are the elements of each, in the order of
    `model.parameters()`: how many buckets there are and what ZeRO-3 keeps on every rank follows from them, which
    matters for models beyond one bucket (5e8 elements by default) and for the persistence threshold of ZeRO-3.
    `fsdp_groups` are the elements that one rank holds of each FSDP group, padding included, the root's last; FSDP
    needs both.

    Raises ValueError if `tensors` don't add up to `parameters`.
    """
    if tensors is not None and sum(tensors) != parameters:
        raise ValueError(f"tensors have {sum(tensors):,} elements together, not {parameters:,}")
    if variant.engine == "single":
        return ()
    spec = replace(spec, dtype=dtype_of(variant, spec))
    if spec.world_size == 1:
        return None
    model = _Model(tensors=(parameters,) if tensors is None else tuple(tensors), known=tensors is not None)
    if variant.engine in ("ddp", "ddp-every"):
        return _ddp(variant, spec, model)
    if variant.engine in ("fsdp", "fsdp-every"):
        return None if fsdp_groups is None else _fsdp(variant, spec, model, fsdp_groups)
    zero = variant.config.get("zero_optimization", {})
    if not _is_within_the_formulas(variant.config, zero):
        return None
    match variant.stage:
        case 0:
            return _stage_0(variant, spec, model)
        case 1 | 2:
            return _stage_1_and_2(variant, spec, model, zero)
        case 3:
            return _stage_3(variant, spec, model, zero)
        case _:
            return None


def dtype_of(variant: Variant, spec: RunSpec) -> Dtype:
    """What a variant computes in: of DeepSpeed's engines its config says it, of the others the run."""
    if variant.engine not in ("stock", "token"):
        return spec.dtype
    enabled = [key for key in ("bf16", "bfloat16", "fp16") if _is_enabled(variant.config.get(key))]
    return "fp32" if not enabled else "fp16" if enabled[0] == "fp16" else "bf16"


def _is_enabled(block: Any) -> bool:
    return isinstance(block, Mapping) and bool(block.get("enabled"))


def _element_size(variant: Variant, spec: RunSpec, *, on_the_wire: bool = False) -> int:
    """Bytes of one parameter in the dtype of the run; of one gradient as it is sent, if the config says otherwise."""
    sent = variant.config.get("communication_data_type") if on_the_wire else None
    return _ELEMENT_SIZES.get(sent, _ELEMENT_SIZES[spec.dtype]) if isinstance(sent, str) else _ELEMENT_SIZES[spec.dtype]


def _stage_0(variant: Variant, spec: RunSpec, model: _Model) -> tuple[CollectiveCount, ...] | None:
    """One all-reduce a bucket at the boundary: `allreduce_gradients` -> `buffered_allreduce_fallback`
    (runtime/engine.py:3090-3095). In float32 the norm that clipping needs is averaged over the ranks, 4 bytes
    (runtime/utils.py:199); in bfloat16 every rank has the whole gradient and sends nothing. In float16 there is the
    overflow check, whose calls differ with the optimizer: no formula."""
    buckets = model.buckets(_STAGE_0_BUCKET, backward=False)
    if buckets is None or spec.dtype == "fp16":
        return None
    size = _element_size(variant, spec, on_the_wire=True)
    reduce = _Call(kind="all-reduce", calls=buckets, bytes=model.elements * size)
    norm = [_Call(kind="all-reduce", calls=1, bytes=4)] if spec.dtype == "fp32" and spec.gradient_clipping > 0 else []
    return _counts(variant, spec, reduce_at_boundary=reduce, in_step=norm)


def _stage_1_and_2(
    variant: Variant, spec: RunSpec, model: _Model, zero: Mapping[str, Any]
) -> tuple[CollectiveCount, ...] | None:
    """One all-reduce a bucket, at the boundary in stage 1 and in every backward in stage 2 unless that is held back by
    `coalesce_grad_reduction` (runtime/engine.py:3084-3089). It is an all-reduce also with `reduce_scatter` on
    (runtime/zero/stage_1_and_2.py:1695-1718). The step gathers the flat partition in one call whatever
    `allgather_bucket_size` is (runtime/utils.py:1008), padded to a multiple of 2 N elements (stage_1_and_2.py:441).
    The norm is 4 bytes (1945); outside float32 the overflow check is 1 byte more (3242). BF16_Optimizer, which stage 1
    is given for bfloat16 with float32 accumulation, sends neither."""
    limit = zero.get("reduce_bucket_size", 500_000_000)
    backward = variant.stage == 2 or bool(zero.get("overlap_comm"))
    buckets = model.buckets(int(limit), backward=backward) if isinstance(limit, int | float) else None
    if buckets is None:
        return None
    reduce = _Call(
        kind="all-reduce", calls=buckets, bytes=model.elements * _element_size(variant, spec, on_the_wire=True)
    )
    padded = ceil(model.elements / (2 * spec.world_size)) * 2 * spec.world_size
    in_step = [
        _Call(kind="all-gather", calls=1, bytes=padded // spec.world_size * _element_size(variant, spec)),
    ]
    if not _has_bf16_optimizer(variant, spec, zero):
        in_step += [_Call(kind="all-reduce", calls=1, bytes=4)]
        in_step += [] if spec.dtype == "fp32" else [_Call(kind="all-reduce", calls=1, bytes=1)]
    if variant.stage == 1 or is_coalesced(variant):
        return _counts(variant, spec, reduce_at_boundary=reduce, in_step=in_step)
    return _counts(variant, spec, each_micro_batch=[reduce], in_step=in_step)


def _stage_3(
    variant: Variant, spec: RunSpec, model: _Model, zero: Mapping[str, Any]
) -> tuple[CollectiveCount, ...] | None:
    """Parameters up to `stage3_param_persistence_threshold` stay on every rank and are gathered one by one after the
    step (runtime/zero/parameter_offload.py:317). The others are gathered in the forward, two calls: those of the first
    module and, prefetched, all that follow (runtime/zero/partitioned_param_coordinator.py:353-470); the backward finds
    them still there. That holds while they fit in `stage3_prefetch_bucket_size`, `stage3_max_live_parameters` and
    `stage3_max_reuse_distance`; beyond, and where some persist and some don't, the calls depend on the modules: no
    formula. Gradients: one reduce-scatter a bucket in every backward (stage3.py:1583), each parameter padded to a
    multiple of N, unless held back; an all-reduce with `reduce_scatter` off. The norm is a float64 (1991)."""
    kept = _persistent(model, zero)
    limits = [zero.get(key, default) for key, default in _STAGE_3_LIMITS.items()]
    if kept is None or not all(isinstance(limit, int | float) and limit >= model.elements for limit in limits):
        return None
    bucket = zero.get("reduce_bucket_size", 500_000_000)
    buckets = model.buckets(int(bucket), backward=True) if isinstance(bucket, int | float) else None
    if buckets is None:
        return None
    partition = model.partition(spec.world_size)
    sent = _element_size(variant, spec, on_the_wire=True)
    if zero.get("reduce_scatter", True):
        reduce = _Call(kind="reduce-scatter", calls=buckets, bytes=partition * spec.world_size * sent)
    else:
        reduce = _Call(kind="all-reduce", calls=buckets, bytes=model.elements * sent)
    gather_bytes = partition * _element_size(variant, spec)
    calls_of_a_gather = 1 if model.known and len(model.tensors) == 1 else 2
    forward = [] if kept else [_Call(kind="all-gather", calls=calls_of_a_gather, bytes=gather_bytes)]
    in_step = [_Call(kind="all-reduce", calls=1, bytes=8)]
    in_step += [_Call(kind="all-reduce", calls=1, bytes=1)] if spec.dtype == "fp16" else []
    in_step += [_Call(kind="all-gather", calls=len(model.tensors), bytes=gather_bytes)] if kept else []
    if is_coalesced(variant):
        return _counts(variant, spec, each_micro_batch=forward, reduce_at_boundary=reduce, in_step=in_step)
    return _counts(variant, spec, each_micro_batch=[*forward, reduce], in_step=in_step)


_STAGE_3_LIMITS = {
    "stage3_prefetch_bucket_size": 50_000_000,
    "stage3_max_live_parameters": 1_000_000_000,
    "stage3_max_reuse_distance": 1_000_000_000,
}


def _persistent(model: _Model, zero: Mapping[str, Any]) -> bool | None:
    """Whether every parameter stays on every rank (True) or none does; None where some do, or nobody can tell."""
    threshold = zero.get("stage3_param_persistence_threshold", 100_000)
    together = zero.get("stage3_model_persistence_threshold", model.elements)
    if not isinstance(threshold, int | float) or not isinstance(together, int | float):
        return None
    if threshold < 1:
        return False
    if not model.known or together < model.elements:
        return None
    if max(model.tensors) <= threshold:
        return True
    return None if min(model.tensors) <= threshold else False


def _ddp(variant: Variant, spec: RunSpec, model: _Model) -> tuple[CollectiveCount, ...] | None:
    """One all-reduce a bucket, at the boundary under `no_sync` and in every backward without it. The first bucket
    closes at 1 MiB, the others at 25 MiB, gradients in reverse order (torch/csrc/distributed/c10d/reducer.cpp,
    `compute_bucket_assignment_by_size`). The norm is taken of whole gradients: nothing is sent for it. In bfloat16 it
    runs under autocast: parameters and gradients stay in float32."""
    if spec.dtype == "fp16":
        return None
    size = 4
    buckets = _ddp_buckets([elements * size for elements in model.tensors], known=model.known)
    if buckets is None:
        return None
    reduce = _Call(kind="all-reduce", calls=buckets, bytes=model.elements * size)
    if variant.engine == "ddp":
        return _counts(variant, spec, reduce_at_boundary=reduce)
    return _counts(variant, spec, each_micro_batch=[reduce])


def _ddp_buckets(sizes: Sequence[int], *, known: bool) -> int | None:
    if not known:
        return 1 if sum(sizes) <= _DDP_FIRST_BUCKET_BYTES else None
    count, filled = 0, 0
    for size in reversed(sizes):
        filled += size
        if filled >= (_DDP_BUCKET_BYTES if count else _DDP_FIRST_BUCKET_BYTES):
            count, filled = count + 1, 0
    return count + (filled > 0)


def _fsdp(variant: Variant, spec: RunSpec, model: _Model, groups: Sequence[int]) -> tuple[CollectiveCount, ...] | None:
    """A group is gathered in one call in the forward, and again in the backward unless it is the root, which
    `fully_shard` leaves gathered after the forward; its gradients are reduced in one reduce-scatter in each backward
    that synchronizes (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py). Clipping adds up the norms of the
    shards, 4 bytes a parameter tensor. In bfloat16, parameters are gathered in it and gradients reduced in float32."""
    if spec.dtype == "fp16" or (spec.gradient_clipping > 0 and not model.known):
        return None
    size = _element_size(variant, spec)
    *blocks, _ = groups
    forward = _Call(kind="all-gather", calls=len(groups), bytes=sum(groups) * size)
    again = [_Call(kind="all-gather", calls=len(blocks), bytes=sum(blocks) * size)] if blocks else []
    reduce = _Call(kind="reduce-scatter", calls=len(groups), bytes=sum(groups) * spec.world_size * 4)
    norm = [_Call(kind="all-reduce", calls=1, bytes=4 * len(model.tensors))] if spec.gradient_clipping > 0 else []
    if variant.engine == "fsdp":
        return _counts(variant, spec, each_micro_batch=[forward, *again], reduce_at_boundary=reduce, in_step=norm)
    return _counts(variant, spec, each_micro_batch=[forward, *again, reduce], in_step=norm)


def _totals(spec: RunSpec) -> Iterator[_Call]:
    """What ds-accum adds: one all-gather of 64 bytes, beyond 1,024 ranks two all-reduces of 64 and 32 bytes."""
    if spec.world_size <= _MOST_RANKS_GATHERED:
        yield _Call(kind="all-gather", calls=1, bytes=_RECORD_BYTES)
    else:
        yield _Call(kind="all-reduce", calls=2, bytes=_RECORD_BYTES + _EXTREMES_BYTES)


def _counts(
    variant: Variant,
    spec: RunSpec,
    *,
    each_micro_batch: Sequence[_Call] = (),
    reduce_at_boundary: _Call | None = None,
    in_step: Sequence[_Call] = (),
) -> tuple[CollectiveCount, ...]:
    """A whole step: what each micro-batch does, A - 1 times before the boundary and once at it."""
    before = variant.gradient_accumulation_steps - 1
    at_boundary = [*each_micro_batch, *([reduce_at_boundary] if reduce_at_boundary else [])]
    totals = list(_totals(spec)) if variant.engine == "token" else []
    sent = totals_moment(variant)
    return (
        *_summed("micro-batch", each_micro_batch, times=before),
        *_summed("boundary", [*at_boundary, *totals] if sent == "boundary" else at_boundary),
        *_summed("step", [*totals, *in_step] if sent == "step" else in_step),
    )


def totals_moment(variant: Variant) -> Moment:
    """When ds-accum's totals travel: during the last backward, or, where the training loop holds reductions back and so
    no backward is known to be the last, in the step."""
    return "step" if variant.coalesce else "boundary"


def _summed(moment: Moment, calls: Sequence[_Call], *, times: int = 1) -> Iterator[CollectiveCount]:
    kinds = dict.fromkeys(call.kind for call in calls) if times else {}
    for kind in kinds:
        same = [call for call in calls if call.kind == kind]
        yield CollectiveCount(
            kind=kind,
            moment=moment,
            calls=float(times * sum(call.calls for call in same)),
            bytes=float(times * sum(call.bytes for call in same)),
        )


def is_coalesced(variant: Variant) -> bool:
    """Whether ZeRO-2/3's reductions are held back until the boundary, by ds-accum or by the loop itself."""
    block = variant.config.get("ds_accum", {})
    by_us = variant.engine == "token" and isinstance(block, Mapping) and block.get("reduction") == "boundary"
    return by_us or variant.coalesce


def _has_bf16_optimizer(variant: Variant, spec: RunSpec, zero: Mapping[str, Any]) -> bool:
    types = variant.config.get("data_types", {})
    accumulation = types.get("grad_accum_dtype") if isinstance(types, Mapping) else None
    offload = zero.get("offload_optimizer") or {}
    offloads = bool(zero.get("cpu_offload")) or offload.get("device", "none") != "none"
    return variant.stage == 1 and spec.dtype == "bf16" and accumulation in ("fp32", "float32") and not offloads


def _is_within_the_formulas(config: Mapping[str, Any], zero: Any) -> bool:
    if not isinstance(zero, Mapping) or any(zero.get(key, off) != off for key, off in _BEYOND_THE_FORMULAS.items()):
        return False
    return not config.get("sparse_gradients") and not _is_enabled(config.get("torch_autocast"))
