"""Every legal way to divide a number of GPUs for a model: all divisors, none guessed, each refusal with its reason.

world = tensor x pipeline x context x sequence x data parallel

tensor      divides attention heads, key-value heads and the MLP's inner size; within a node unless asked (Shoeybi
            et al. 2019, arXiv 1909.08053, section 3)
pipeline    at most one stage a layer
sequence    Ulysses: divides the heads that tensor parallelism leaves, and the sequence (Jacobs et al. 2023, arXiv
            2309.14509, section 3); never with pipeline, whose ranks DeepSpeed lays out as pipe x data x model and
            nothing else (0.19.8, runtime/pipe/topology.py, `PipeModelDataParallelTopology`); within a node unless
            asked
context     ring attention: twice its size divides the sequence, as causal blocks are dealt in pairs (Liu et al.
            2023, arXiv 2310.01889; Megatron-LM, context parallel); only if asked, as DeepSpeed has none of its own
expert      divides the experts, and the ranks that hold the same layers
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Literal

from ds_accum.batch import ParallelLayout
from ds_accum.batch.divisibility import divisors
from ds_accum.batch.wording import require_integer, show_list
from ds_accum.errors import UsageError
from ds_accum.plan.pipeline.times import exact
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.training import Offload, Recompute

__all__ = ["Limits", "RefusedDegree", "legal_layouts", "refused_degrees", "splits_sequence", "ways_to_train"]

Degree = Literal["tensor", "pipeline", "context", "sequence", "expert"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What may be considered. None: as far as the module's rules go. Raises UsageError for a size below 1.

    `max_bubble` is a share of the step, from 0 to 1, kept exactly: 0.15 is 3/20. `offload` allows optimizer states, and
    at ZeRO stage 3 parameters, in the memory of the host; `host_memory_bytes` is that of one node. `recompute`
    "selective" is of no use with FlashAttention, which keeps no attention scores, and is skipped there.
    """

    max_tensor_parallel_size: int | None = None
    max_pipeline_parallel_size: int | None = None
    max_context_parallel_size: int = 1
    max_sequence_parallel_size: int | None = None
    max_expert_parallel_size: int | None = None
    max_micro_batch_size: int | None = None
    zero_stages: tuple[int, ...] = (0, 1, 2, 3)
    recompute: tuple[Recompute, ...] = ("none", "selective", "full")
    offload: bool = False
    host_memory_bytes: int | None = None
    max_bubble: Fraction | float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.startswith("max_") and field.name.endswith("_size") and value is not None:
                require_integer(value, name=field.name.replace("_", " "), error=UsageError)
        if self.max_bubble is not None:
            object.__setattr__(self, "max_bubble", _exact_share(self.max_bubble))
        if not self.zero_stages or not set(self.zero_stages) <= {0, 1, 2, 3}:
            raise UsageError("ZeRO has the stages 0, 1, 2 and 3", remedy="name at least one of them, and no other")
        if not self.recompute:
            raise UsageError("no kind of recompute is allowed", remedy="allow none, selective or full")


def _exact_share(max_bubble: Fraction | float) -> Fraction:
    if not 0 <= max_bubble < 1:
        raise UsageError(
            f"the largest bubble must be a share from 0 to below 1, not {float(max_bubble):g}",
            remedy="0.15 stands for 15 % of the step",
        )
    # The float next to 0.15 is below 3/20, which a bubble may well be.
    return exact(max_bubble, name="the largest bubble", zero=True, remedy="give 0, or a share such as 0.05")


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedDegree:
    """Sizes of one degree that divide the world, and why they can't be."""

    degree: Degree
    sizes: tuple[int, ...]
    reason: str


def legal_layouts(
    shape: ModelShape, *, world_size: int, gpus_per_node: int, sequence_length: int, limits: Limits
) -> tuple[ParallelLayout, ...]:
    """All of them, in the order of their degrees. Raises UsageError where the world is too large to divide."""
    found = []
    world = _divisors(world_size)
    tensor_sizes = [t for t in world if _tensor_objection(t, shape, gpus_per_node, limits) is None]
    pipeline_sizes = [p for p in world if _pipeline_objection(p, shape, limits) is None]
    context_sizes = [c for c in world if _context_objection(c, sequence_length, limits) is None]
    for tensor in tensor_sizes:
        for pipeline in pipeline_sizes:
            for context in context_sizes:
                if world_size % (tensor * pipeline * context):
                    continue
                rest = world_size // (tensor * pipeline * context)
                for sequence in world:
                    if rest % sequence or (sequence > 1 and pipeline > 1):
                        continue
                    if _sequence_objection(
                        sequence, shape, gpus_per_node, sequence_length, limits, tensor=tensor, context=context
                    ):
                        continue
                    found += [
                        ParallelLayout(
                            world_size=world_size,
                            tensor_parallel_size=tensor,
                            pipeline_parallel_size=pipeline,
                            context_parallel_size=context,
                            sequence_parallel_size=sequence,
                            expert_parallel_size=expert,
                        )
                        for expert in _expert_sizes(shape, replicas=rest * context, limits=limits)
                    ]
    return tuple(found)


def refused_degrees(
    shape: ModelShape, *, world_size: int, gpus_per_node: int, sequence_length: int, limits: Limits
) -> tuple[RefusedDegree, ...]:
    """The divisors of the world that are no size of a degree on their own, grouped by reason."""
    reasons: dict[tuple[Degree, str], list[int]] = {}
    for size in _divisors(world_size):
        objections: tuple[tuple[Degree, str | None], ...] = (
            ("tensor", _tensor_objection(size, shape, gpus_per_node, limits)),
            ("pipeline", _pipeline_objection(size, shape, limits)),
            ("context", _context_objection(size, sequence_length, limits)),
            (
                "sequence",
                _sequence_objection(size, shape, gpus_per_node, sequence_length, limits, tensor=1, context=1),
            ),
        )
        for degree, reason in objections:
            if reason is not None:
                reasons.setdefault((degree, reason), []).append(size)
    return tuple(
        RefusedDegree(degree=degree, sizes=tuple(sizes), reason=reason)
        for (degree, reason), sizes in sorted(reasons.items(), key=lambda item: (_ORDER[item[0][0]], item[1]))
    )


_ORDER: dict[Degree, int] = {"tensor": 0, "pipeline": 1, "context": 2, "sequence": 3, "expert": 4}


def splits_sequence(layout: ParallelLayout, sequence_length: int) -> bool:
    """Whether tensor-parallel ranks can split the tokens of a sequence among them (Megatron's sequence parallel)."""
    tokens, rest = divmod(sequence_length, layout.context_parallel_size * layout.sequence_parallel_size)
    return layout.tensor_parallel_size > 1 and rest == 0 and tokens % layout.tensor_parallel_size == 0


def ways_to_train(
    layout: ParallelLayout, limits: Limits, *, dtype: str, accumulates_in_fp32: bool, flash_attention: bool
) -> Iterator[tuple[int, Recompute, Offload, Offload]]:
    """ZeRO stage, recompute, and where optimizer states and parameters lie: every combination that DeepSpeed runs.

    ZeRO 2 and 3 never with a pipeline (DeepSpeed 0.19.8, runtime/pipe/engine.py), 3 never with expert parallelism (its
    native MoE layers refuse it). Stage 0 accumulates in the dtype of the model, so that it can't where 16-bit gradients
    are to add up in float32, unscales fp16 gradients that it never scaled, and in fp32 clips a pipeline by the norm of
    its first stage alone (rule DSA903).
    """
    for stage in sorted(set(limits.zero_stages)):
        if stage >= 2 and layout.pipeline_parallel_size > 1:
            continue
        if stage == 3 and layout.expert_parallel_size > 1:
            continue
        if stage == 0 and _is_wrong_without_zero(layout, dtype, accumulates_in_fp32=accumulates_in_fp32):
            continue
        places: list[tuple[Offload, Offload]] = [("none", "none")]
        if limits.offload and stage >= 1:
            places.append(("cpu", "none"))
        if limits.offload and stage == 3:
            places.append(("cpu", "cpu"))
        for recompute in limits.recompute:
            if recompute == "selective" and flash_attention:
                continue
            for optimizer, parameters in places:
                yield stage, recompute, optimizer, parameters


def _is_wrong_without_zero(layout: ParallelLayout, dtype: str, *, accumulates_in_fp32: bool) -> bool:
    if dtype == "fp32":
        return layout.pipeline_parallel_size > 1
    return dtype == "fp16" or accumulates_in_fp32


def _divisors(world_size: int) -> tuple[int, ...]:
    require_integer(world_size, name="number of GPUs", error=UsageError)
    found = divisors(world_size)
    if found is None:
        raise UsageError(f"{world_size} GPUs are too many to plan for", remedy="give fewer than 2^28")
    return found


def _tensor_objection(size: int, shape: ModelShape, gpus_per_node: int, limits: Limits) -> str | None:
    if size == 1:
        return None
    asked = limits.max_tensor_parallel_size
    if asked is not None and size > asked:
        return f"more than the limit of {asked}"
    if asked is None and size > gpus_per_node:
        return f"more than the {gpus_per_node} GPUs of a node"
    if max(size, gpus_per_node) % min(size, gpus_per_node):
        return f"a group would straddle nodes of {gpus_per_node} GPUs"
    uneven = [
        f"{count} {name}"
        for name, count in (
            ("attention heads", shape.num_attention_heads),
            ("key-value heads", shape.num_key_value_heads),
            ("inner size of the MLP", shape.ffn_hidden_size),
        )
        if count % size
    ]
    return f"does not divide {show_list(uneven, last=' and ')}" if uneven else None


def _pipeline_objection(size: int, shape: ModelShape, limits: Limits) -> str | None:
    asked = limits.max_pipeline_parallel_size
    if asked is not None and size > max(1, asked):
        return f"more than the limit of {asked}"
    return f"more than the {shape.num_layers} layers" if size > shape.num_layers else None


def _context_objection(size: int, sequence_length: int, limits: Limits) -> str | None:
    if size == 1:
        return None
    if size > limits.max_context_parallel_size:
        return f"more than the limit of {limits.max_context_parallel_size}"
    return f"twice it does not divide the sequence length {sequence_length}" if sequence_length % (2 * size) else None


def _sequence_objection(
    size: int,
    shape: ModelShape,
    gpus_per_node: int,
    sequence_length: int,
    limits: Limits,
    *,
    tensor: int,
    context: int,
) -> str | None:
    if size == 1:
        return None
    asked = limits.max_sequence_parallel_size
    if asked is not None and size > asked:
        return f"more than the limit of {asked}"
    if asked is None and size * tensor > gpus_per_node:
        return f"more than the {gpus_per_node} GPUs of a node"
    if sequence_length % (size * context):
        return f"does not divide the sequence length {sequence_length}"
    uneven = [
        f"{count} {name}"
        for name, count in (
            ("attention heads", shape.num_attention_heads),
            ("key-value heads", shape.num_key_value_heads),
        )
        if count % (tensor * size)
    ]
    return f"does not divide {show_list(uneven, last=' and ')}" if uneven else None


def _expert_sizes(shape: ModelShape, *, replicas: int, limits: Limits) -> tuple[int, ...]:
    """Divisors of the experts and of the ranks that hold the same layers."""
    if shape.experts is None:
        return (1,)
    most = shape.experts.num_experts
    if limits.max_expert_parallel_size is not None:
        most = min(most, limits.max_expert_parallel_size)
    return tuple(size for size in range(1, most + 1) if shape.experts.num_experts % size == 0 and replicas % size == 0)
