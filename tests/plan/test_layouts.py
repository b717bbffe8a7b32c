"""All legal layouts and no other: against every product of degrees, tried one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from ds_accum.batch import ParallelLayout
from ds_accum.errors import LayoutError, UsageError
from ds_accum.plan.layouts import Limits, legal_layouts, refused_degrees, ways_to_train
from ds_accum.plan.shape import ModelShape
from tests.plan.shapes_for_tests import SMALL, SMALL_WITH_EXPERTS


def every_layout(shape: ModelShape, world: int, node: int, length: int, limits: Limits) -> Iterator[ParallelLayout]:
    """By brute force, from the rules as the module states them."""
    experts = 1 if shape.experts is None else shape.experts.num_experts
    for t, p, c, s, e in product(*(range(1, world + 1),) * 4, range(1, experts + 1)):
        if world % (t * p * c * s):
            continue
        try:
            layout = ParallelLayout(
                world_size=world,
                tensor_parallel_size=t,
                pipeline_parallel_size=p,
                context_parallel_size=c,
                sequence_parallel_size=s,
                expert_parallel_size=e,
            )
        except LayoutError:
            continue
        heads = (shape.num_attention_heads, shape.num_key_value_heads)
        rules = (
            t <= (limits.max_tensor_parallel_size or node) and max(t, node) % min(t, node) == 0,
            all(count % t == 0 for count in (*heads, shape.ffn_hidden_size)),
            p <= min(shape.num_layers, limits.max_pipeline_parallel_size or world),
            c == 1 or (c <= limits.max_context_parallel_size and length % (2 * c) == 0),
            s == 1 or p == 1,
            s == 1 or all(count % (t * s) == 0 for count in heads),
            s == 1 or length % (s * c) == 0,
            s <= limits.max_sequence_parallel_size if limits.max_sequence_parallel_size else s == 1 or s * t <= node,
            experts % e == 0 and (world // (t * p)) % e == 0,
            e <= (limits.max_expert_parallel_size or experts),
        )
        if all(rules):
            yield layout


@pytest.mark.parametrize("shape", [SMALL, SMALL_WITH_EXPERTS], ids=lambda shape: shape.name)
@pytest.mark.parametrize(
    "limits",
    [
        Limits(),
        Limits(max_context_parallel_size=4),
        Limits(max_tensor_parallel_size=12, max_sequence_parallel_size=2, max_expert_parallel_size=2),
        Limits(max_tensor_parallel_size=1, max_pipeline_parallel_size=2, max_sequence_parallel_size=1),
    ],
)
@pytest.mark.parametrize(("world", "node", "length"), [(1, 8, 128), (8, 8, 128), (12, 4, 96), (12, 8, 128), (16, 4, 6)])
def test_every_legal_layout_is_found_and_no_other(
    shape: ModelShape, limits: Limits, world: int, node: int, length: int
) -> None:
    found = legal_layouts(shape, world_size=world, gpus_per_node=node, sequence_length=length, limits=limits)
    assert len(found) == len(set(found))
    assert set(found) == set(every_layout(shape, world, node, length, limits))


def test_tensor_parallel_stays_within_a_node_unless_asked() -> None:
    def sizes(limits: Limits) -> set[int]:
        shape = SMALL_WITH_EXPERTS
        found = legal_layouts(shape, world_size=16, gpus_per_node=2, sequence_length=64, limits=limits)
        return {layout.tensor_parallel_size for layout in found}

    assert sizes(Limits()) == {1, 2}
    assert sizes(Limits(max_tensor_parallel_size=4)) == {1, 2, 4}


def test_a_degree_that_can_not_be_is_refused_with_its_reason() -> None:
    found = refused_degrees(SMALL, world_size=48, gpus_per_node=8, sequence_length=64, limits=Limits())
    reasons = {(item.degree, item.reason): item.sizes for item in found}
    assert reasons["tensor", "a group would straddle nodes of 8 GPUs"] == (3, 6)
    assert reasons["tensor", "more than the 8 GPUs of a node"] == (12, 16, 24, 48)
    assert reasons["tensor", "does not divide 12 attention heads and 4 key-value heads"] == (8,)
    assert reasons["pipeline", "more than the 6 layers"] == (8, 12, 16, 24, 48)


def ways(layout: ParallelLayout, limits: Limits, *, dtype: str = "bf16", in_fp32: bool = True) -> set[int]:
    found = ways_to_train(layout, limits, dtype=dtype, accumulates_in_fp32=in_fp32, flash_attention=True)
    return {stage for stage, *_ in found}


def test_only_the_stages_that_deepspeed_runs_are_tried() -> None:
    alone = ParallelLayout(world_size=8)
    piped = ParallelLayout(world_size=8, pipeline_parallel_size=2)
    spread = ParallelLayout(world_size=8, expert_parallel_size=2)
    assert ways(alone, Limits()) == {1, 2, 3}
    assert ways(alone, Limits(), in_fp32=False) == {0, 1, 2, 3}
    assert ways(alone, Limits(), dtype="fp32") == {0, 1, 2, 3}
    assert ways(alone, Limits(), dtype="fp16", in_fp32=False) == {1, 2, 3}
    assert ways(piped, Limits()) == {1}
    assert ways(piped, Limits(), in_fp32=False) == {0, 1}
    assert ways(piped, Limits(), dtype="fp32") == {1}
    assert ways(spread, Limits()) == {1, 2}
    assert ways(alone, Limits(zero_stages=(3,))) == {3}


def test_offload_is_tried_only_where_allowed_and_of_parameters_only_at_stage_3() -> None:
    def places(limits: Limits) -> set[tuple[int, str, str]]:
        layout = ParallelLayout(world_size=8)
        found = ways_to_train(layout, limits, dtype="bf16", accumulates_in_fp32=True, flash_attention=True)
        return {(stage, optimizer, parameters) for stage, _, optimizer, parameters in found}

    assert places(Limits()) == {(1, "none", "none"), (2, "none", "none"), (3, "none", "none")}
    assert places(Limits(offload=True)) - places(Limits()) == {
        (1, "cpu", "none"),
        (2, "cpu", "none"),
        (3, "cpu", "none"),
        (3, "cpu", "cpu"),
    }


def test_selective_recompute_is_tried_only_where_scores_are_kept() -> None:
    def kinds(*, flash: bool) -> set[str]:
        layout = ParallelLayout(world_size=8)
        found = ways_to_train(layout, Limits(), dtype="bf16", accumulates_in_fp32=True, flash_attention=flash)
        return {recompute for _, recompute, *_ in found}

    assert kinds(flash=True) == {"none", "full"}
    assert kinds(flash=False) == {"none", "selective", "full"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"max_tensor_parallel_size": 0}, "max tensor parallel size must be at least 1"),
        ({"max_micro_batch_size": 1.5}, "max micro batch size must be an integer"),
        ({"max_bubble": 1.0}, "a share from 0 to below 1, not 1"),
        ({"max_bubble": float("nan")}, "a share from 0 to below 1, not nan"),
        ({"zero_stages": (4,)}, "ZeRO has the stages"),
        ({"zero_stages": ()}, "ZeRO has the stages"),
        ({"recompute": ()}, "no kind of recompute"),
    ],
)
def test_limits_that_make_no_sense_are_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Limits(**change)  # type: ignore[arg-type]


def test_a_world_beyond_all_worlds_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="are too many to plan for"):
        legal_layouts(SMALL, world_size=10**30, gpus_per_node=8, sequence_length=64, limits=Limits())
