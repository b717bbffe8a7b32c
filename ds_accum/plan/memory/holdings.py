"""The parameters that one rank of a pipeline stage works with, and how ZeRO cuts them between ranks.

ZeRO cuts over the ranks that hold the same slice: data x context x sequence parallel for what every expert shares, the
expert data parallel ranks for experts (DeepSpeed 0.19.8, `seq_data_parallel_group` in runtime/engine.py:2683;
runtime/zero/stage_1_and_2.py:880). Each of the two is a `Holding`. With D such ranks and P elements:

    ZeRO-1, ZeRO-2   one flat tensor, padded to a multiple of 2 D, cut in D    (stage_1_and_2.py:441)
    ZeRO-3           each tensor padded to a multiple of D, cut in D           (partition_parameters.py)
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache

from ds_accum.batch import ParallelLayout
from ds_accum.plan.memory.stages import Stage
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.tensors import ParameterTensor, embedding_tensors, head_tensors, layer_tensors

__all__ = ["Holding", "Holdings", "holdings_of"]

_RANKS_LOOKED_AT = 256
"""Up to so many ranks each one's share of the tensors is looked at; beyond, those at the seams of the model."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Tensors of one kind on one rank, as runs of (elements, count) in the model's order, cut over `shards` ranks."""

    runs: tuple[tuple[int, int], ...]
    shards: int
    elements: int
    """Of all tensors, before ZeRO cuts them."""

    matrices: int
    """Of those, in the matrices of layers."""

    replicated: int
    """Of those, in what every tensor-parallel rank holds whole, in layers and behind them."""

    @property
    def largest(self) -> int:
        """Elements of the largest tensor."""
        return max((elements for elements, _ in self.runs), default=0)

    @property
    def flat(self) -> int:
        """Of the flat tensor of ZeRO-1 and ZeRO-2, padding included."""
        return self.flat_partition * self.shards

    @property
    def flat_partition(self) -> int:
        """One rank's part of the flat tensor."""
        return -(-self.elements // (2 * self.shards)) * 2

    @property
    def partition(self) -> int:
        """One rank's part of all tensors at ZeRO-3."""
        return sum(-(-elements // self.shards) * count for elements, count in self.runs)

    def persistent(self, threshold: int) -> int:
        """Of the tensors that ZeRO-3 keeps whole on every rank, being no larger than `threshold`."""
        return sum(elements * count for elements, count in self.runs if elements <= threshold)

    @property
    def touched(self) -> int:
        """Of the tensors that reach into a partition of the flat tensor, each counted whole; the rank with most."""
        return _touched(self.runs, self.flat_partition, self.shards)


@dataclass(frozen=True, slots=True)
class Holdings:
    """What one rank holds: what all experts share and, where there are any, the experts; sizes are of both together,
    but for `largest` and `largest_flat_partition`, which are of one tensor and of one kind.
    """

    kinds: tuple[Holding, ...]
    elements: int
    flat: int
    flat_partition: int
    largest_flat_partition: int
    partition: int
    touched: int
    largest: int
    matrices: int
    replicated: int

    @property
    def shards(self) -> int:
        """Ranks that the parameters all experts share are cut over."""
        return self.kinds[0].shards

    def persistent(self, threshold: int) -> int:
        """Of the tensors that ZeRO-3 keeps whole on every rank."""
        return sum(kind.persistent(threshold) for kind in self.kinds)


@lru_cache(maxsize=4096)
def holdings_of(shape: ModelShape, layout: ParallelLayout, stage: Stage) -> Holdings:
    """What one rank of `stage` holds."""
    tensors = [*(embedding_tensors(shape) if stage.has_embedding else ())]
    for has_experts in stage.layers:
        tensors += layer_tensors(shape, has_experts=has_experts)
    if stage.has_head:
        # Where the embedding serves as the output, a last stage that is not the first has a copy of it.
        tensors += embedding_tensors(shape)[:1] if shape.tied_embeddings and not stage.has_embedding else ()
        tensors += head_tensors(shape)
    data = layout.pipeline_stage_size // layout.tensor_parallel_size
    kinds = [_holding([tensor for tensor in tensors if not tensor.is_expert], layout, data)]
    experts = [tensor for tensor in tensors if tensor.is_expert]
    if experts:
        kinds.append(_holding(experts, layout, layout.expert_data_parallel_size))
    return Holdings(
        kinds=tuple(kinds),
        elements=sum(kind.elements for kind in kinds),
        flat=sum(kind.flat for kind in kinds),
        flat_partition=sum(kind.flat_partition for kind in kinds),
        largest_flat_partition=max(kind.flat_partition for kind in kinds),
        partition=sum(kind.partition for kind in kinds),
        touched=sum(kind.touched for kind in kinds),
        largest=max(kind.largest for kind in kinds),
        matrices=sum(kind.matrices for kind in kinds),
        replicated=sum(kind.replicated for kind in kinds),
    )


def _holding(tensors: list[ParameterTensor], layout: ParallelLayout, shards: int) -> Holding:
    runs: list[tuple[int, int]] = []
    matrices = replicated = 0
    for tensor in tensors:
        if tensor.is_expert:
            elements = tensor.elements_per_rank(layout.expert_tensor_parallel_size)
            count = tensor.count // layout.expert_parallel_size
        else:
            elements, count = tensor.elements_per_rank(layout.tensor_parallel_size), tensor.count
            replicated += 0 if tensor.is_split or tensor.place == "embedding" else elements * count
        if tensor.is_matrix and tensor.place == "layer":
            matrices += elements * count
        runs.append((elements, count))
    elements = sum(size * count for size, count in runs)
    return Holding(tuple(runs), shards, elements, matrices, replicated)


def _touched(runs: tuple[tuple[int, int], ...], size: int, shards: int) -> int:
    starts, position = [], 0
    for elements, count in runs:
        starts.append(position)
        position += elements * count
    end = position

    def edges(place: int) -> tuple[int, int]:
        """The start and the end of the tensor that `place` lies in."""
        run = bisect_right(starts, place) - 1
        elements = runs[run][0]
        start = starts[run] + (place - starts[run]) // elements * elements
        return start, start + elements

    def reached(rank: int) -> int:
        first, last = rank * size, min((rank + 1) * size, end) - 1
        return edges(last)[1] - edges(first)[0] if first <= last else 0

    if shards <= _RANKS_LOOKED_AT:
        return max(reached(rank) for rank in range(shards))
    near = {start // size + step for start in (*starts, end - 1) for step in (-1, 0, 1)}
    inside = (min(count, -(-(size - 1) // elements) + 1) * elements for elements, count in runs)
    return max(*(reached(rank) for rank in near if 0 <= rank < shards), *inside)
