"""The time of one collective, in cases that can be reckoned by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ds_accum.batch import ParallelLayout
from ds_accum.plan.communication import Group
from ds_accum.plan.hardware import Hardware
from ds_accum.plan.links import call_seconds, stride_of

# Round numbers: 100 bytes a second within a node of 4, 10 between; a hop costs 1 s within and 5 s between.
GPU = Hardware(
    name="round",
    memory_bytes=1,
    gpus_per_node=4,
    peak_flops_per_second={"bf16": 1.0},
    memory_bytes_per_second=1.0,
    intra_node_bytes_per_second=100.0,
    inter_node_bytes_per_second=10.0,
    host_bytes_per_second=1.0,
    intra_node_latency_seconds=1.0,
    inter_node_latency_seconds=5.0,
)


@pytest.mark.parametrize(
    ("group", "stride"),
    [("tensor", 1), ("sequence", 2), ("context", 6), ("data", 2), ("expert", 1), ("expert data", 4), ("pipeline", 24)],
)
def test_ranks_are_numbered_tensor_first_and_pipeline_last(group: Group, stride: int) -> None:
    layout = ParallelLayout(
        world_size=48,
        tensor_parallel_size=2,
        sequence_parallel_size=3,
        context_parallel_size=2,
        pipeline_parallel_size=2,
        expert_parallel_size=4,
    )
    assert stride_of(group, layout) == stride


@given(
    tensor=st.sampled_from((1, 2, 4)),
    pipeline=st.sampled_from((1, 2)),
    data=st.sampled_from((1, 2, 8)),
    expert=st.sampled_from((1, 2, 4, 8)),
    is_cut=st.booleans(),
)
def test_a_group_of_experts_lies_within_its_pipeline_stage(
    tensor: int, pipeline: int, data: int, expert: int, is_cut: bool
) -> None:
    of_expert, stage = tensor if is_cut else 1, tensor * data
    assume(stage % (expert * of_expert) == 0)
    layout = ParallelLayout(
        world_size=stage * pipeline,
        tensor_parallel_size=tensor,
        pipeline_parallel_size=pipeline,
        expert_parallel_size=expert,
        expert_tensor_parallel_size=of_expert,
    )
    assert stride_of("expert", layout) * expert == stride_of("expert data", layout)
    assert stride_of("expert data", layout) * layout.expert_data_parallel_size == layout.pipeline_stage_size


def test_the_copies_of_an_expert_on_one_node_reduce_at_the_speed_of_the_node() -> None:
    layout = ParallelLayout(world_size=4, tensor_parallel_size=2, expert_parallel_size=2)
    # The whole world is one node of 4, whatever tensor parallel: ranks 0 and 2 hold the same experts.
    moving, waiting = call_seconds(
        "all-reduce", "expert data", ranks=2, input_bytes=400, layout=layout, hardware=GPU, share_of_peak=1.0
    )
    assert (moving, waiting) == (4.0, 2.0)


def test_a_single_rank_waits_for_nobody() -> None:
    layout = ParallelLayout(world_size=1)
    seconds = call_seconds(
        "all-reduce", "data", ranks=1, input_bytes=100, layout=layout, hardware=GPU, share_of_peak=1.0
    )
    assert seconds == (0.0, 0.0)


def test_within_a_node_a_ring_moves_at_the_speed_of_the_node() -> None:
    layout = ParallelLayout(world_size=8, tensor_parallel_size=4)
    # 2 x 3/4 of 400 bytes at half of 100 a second; two rings of 3 hops of 1 s.
    assert call_seconds(
        "all-reduce", "tensor", ranks=4, input_bytes=400, layout=layout, hardware=GPU, share_of_peak=0.5
    ) == (12.0, 6.0)


def test_between_nodes_a_ring_moves_at_the_speed_of_its_ports() -> None:
    layout = ParallelLayout(world_size=16)

    def seconds(ports: int) -> tuple[float, float]:
        return call_seconds(
            "reduce-scatter",
            "data",
            ranks=16,
            input_bytes=1600,
            layout=layout,
            hardware=GPU,
            share_of_peak=1.0,
            ports_of_a_ring=ports,
        )

    # 15/16 of 1600 bytes; 15 hops, 3 of them between the 4 nodes.
    assert seconds(1) == (150.0, 3 * 5 + 12 * 1)
    assert seconds(2) == (75.0, 27)
    assert seconds(8) == (37.5, 27)  # there are 4 in a node


def test_an_all_reduce_over_many_nodes_waits_for_a_tree_rather_than_a_ring() -> None:
    layout = ParallelLayout(world_size=64)
    _, waiting = call_seconds(
        "all-reduce", "data", ranks=64, input_bytes=64, layout=layout, hardware=GPU, share_of_peak=1.0
    )
    # 16 nodes: up and down 4 levels between nodes, and along 3 GPUs in each; a ring would take 2 x (15 x 5 + 48).
    assert waiting == 2 * 4 * 5 + 2 * 3 * 1


def test_a_group_of_one_rank_a_node_has_one_port_whatever_is_allowed() -> None:
    layout = ParallelLayout(world_size=8, tensor_parallel_size=4)
    moving, _ = call_seconds(
        "all-gather",
        "data",
        ranks=2,
        input_bytes=100,
        layout=layout,
        hardware=GPU,
        share_of_peak=1.0,
        ports_of_a_ring=4,
    )
    assert moving == 10.0


def test_an_all_to_all_sends_only_a_part_between_nodes() -> None:
    layout = ParallelLayout(world_size=8)
    # 4 of the 7 parts of 100 bytes go to the other node at 10 bytes a second.
    assert call_seconds(
        "all-to-all", "expert", ranks=8, input_bytes=800, layout=layout, hardware=GPU, share_of_peak=1.0
    ) == (40.0, 5.0)


def test_an_all_to_all_between_lone_ranks_moves_at_the_speed_between_nodes() -> None:
    layout = ParallelLayout(world_size=2, expert_parallel_size=2)
    lone = replace(GPU, gpus_per_node=1)
    moving, _ = call_seconds(
        "all-to-all", "expert", ranks=2, input_bytes=800, layout=layout, hardware=lone, share_of_peak=1.0
    )
    assert moving == 40.0


def test_pieces_multiply_the_waiting_alone() -> None:
    layout = ParallelLayout(world_size=4)
    once = call_seconds("all-gather", "data", ranks=4, input_bytes=100, layout=layout, hardware=GPU, share_of_peak=1.0)
    cut = call_seconds(
        "all-gather", "data", ranks=4, input_bytes=100, layout=layout, hardware=GPU, share_of_peak=1.0, pieces=7
    )
    assert once == (3.0, 3.0)
    assert cut == (3.0, 21.0)
