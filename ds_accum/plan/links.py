"""How long one collective takes on the links of a cluster: the bytes a rank sends, and the steps of a ring.

Ranks are numbered as Megatron and DeepSpeed number them (DeepSpeed 0.19.8, runtime/pipe/topology.py,
`PipeModelDataParallelTopology`): tensor parallel ranks are next to each other, then sequence and context parallel,
then data parallel, pipeline stages farthest apart. So each group has a stride and a size:

    group          stride                                      size
    tensor         1                                           tensor
    sequence       tensor                                      sequence
    context        tensor x sequence                           context
    data           tensor                                      data x context x sequence
    expert         expert tensor                               expert
    expert data    expert tensor x expert                      stage / (expert x expert tensor)
    pipeline       world / pipeline                            pipeline

The groups of experts are DeepSpeed's default ones (0.19.8, utils/groups.py, `_create_expert_and_data_parallel`): they
pay no heed to tensor parallel unless experts are cut themselves, so that neighbours hold different experts.

A group lies within a node where stride x size <= GPUs per node. Else k = GPUs per node / stride of its ranks share a
node (at least 1), whose network ports a ring can use side by side, up to `ports_of_a_ring` of them:

    bytes a second   min(within, min(k, ports) x between)       all-to-all: min(within, between x (N - 1) / (N - k)),
                     N - k of the N - 1 parts that a rank sends go to another node
    steps            N - 1 hops, of which the last of each node is one between nodes; all-reduce 2 (N - 1), or, if that
                     is less, up and down a tree of nodes: 2 log2(nodes) hops between, 2 (k - 1) within

(NVIDIA, nccl-tests, doc/PERFORMANCE.md, for the bytes; NCCL 2.18, src/graph/tuning.cc, `ncclTopoTuneModel`, for the
steps of rings and trees.)
"""

from __future__ import annotations

from math import ceil, log2

from ds_accum.batch import ParallelLayout
from ds_accum.plan.communication import Group, Kind, sent_bytes
from ds_accum.plan.hardware import Hardware

__all__ = ["call_seconds", "stride_of"]


def stride_of(group: Group, layout: ParallelLayout) -> int:
    """How far apart the ranks of a group are numbered."""
    tensor = layout.tensor_parallel_size
    match group:
        case "tensor":
            return 1
        case "sequence" | "data":
            return tensor
        case "context":
            return tensor * layout.sequence_parallel_size
        case "expert":
            return layout.expert_tensor_parallel_size
        case "expert data":
            return layout.expert_tensor_parallel_size * layout.expert_parallel_size
        case "pipeline":
            return layout.pipeline_stage_size


def call_seconds(
    kind: Kind,
    group: Group,
    *,
    ranks: int,
    input_bytes: int,
    layout: ParallelLayout,
    hardware: Hardware,
    share_of_peak: float,
    ports_of_a_ring: int = 1,
    pieces: int = 1,
) -> tuple[float, float]:
    """Seconds of one call: (those that grow with the bytes, those that don't).

    `input_bytes` is what each of the `ranks` passes in, `share_of_peak` what software gets of the link's speed,
    `pieces` how many calls software makes of this one.
    """
    if ranks == 1:
        return 0.0, 0.0
    stride = stride_of(group, layout)
    within = hardware.intra_node_bytes_per_second
    between = hardware.inter_node_bytes_per_second
    is_within_node = stride * ranks <= hardware.gpus_per_node
    of_node = ranks if is_within_node else min(ranks, max(1, hardware.gpus_per_node // stride))
    if is_within_node:
        speed = within
    elif kind == "point-to-point":
        speed = between
    elif kind == "all-to-all":
        speed = min(within, between * (ranks - 1) / max(1, ranks - of_node))
    else:
        speed = min(within, min(of_node, ports_of_a_ring) * between)
    moving = sent_bytes(kind, input_bytes, ranks) / (speed * share_of_peak)
    return moving, pieces * _latency_seconds(kind, ranks, of_node, hardware, is_within_node=is_within_node)


def _latency_seconds(kind: Kind, ranks: int, of_node: int, hardware: Hardware, *, is_within_node: bool) -> float:
    hop_within, hop_between = hardware.intra_node_latency_seconds, hardware.inter_node_latency_seconds
    if kind in ("point-to-point", "all-to-all"):
        return hop_within if is_within_node else hop_between
    nodes = 1 if is_within_node else ceil(ranks / of_node)
    between = nodes - 1
    once = between * hop_between + (ranks - 1 - between) * hop_within
    if kind != "all-reduce":
        return once
    tree = 2 * ceil(log2(nodes)) * hop_between + 2 * (of_node - 1) * hop_within
    return min(2 * once, tree)
