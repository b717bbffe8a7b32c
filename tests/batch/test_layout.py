"""ParallelLayout: the division holds on every small grid, what does not divide is refused with its equation."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_accum.batch import Indivisible, Neighbours, ParallelLayout
from ds_accum.errors import LayoutError

DEGREES = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size", "sequence_parallel_size")
FIELDS = ("world_size", *DEGREES, "expert_parallel_size", "expert_tensor_parallel_size")


def fits(sizes: dict[str, int]) -> bool:
    """The rule, spelled out by giving every rank its coordinates instead of dividing."""
    model = 1
    for degree in DEGREES:
        model *= sizes.get(degree, 1)
    data_parallel = sum(1 for rank in range(sizes["world_size"]) if rank % model == 0)
    if data_parallel * model != sizes["world_size"]:
        return False
    stage = data_parallel * model // sizes.get("pipeline_parallel_size", 1)
    return stage % (sizes.get("expert_parallel_size", 1) * sizes.get("expert_tensor_parallel_size", 1)) == 0


def refusal(**sizes: Any) -> LayoutError:
    with pytest.raises(LayoutError) as caught:
        ParallelLayout(**sizes)
    return caught.value


def test_the_equation_holds_for_every_pair_of_degrees_up_to_eight() -> None:
    for world, (first, second) in product(range(1, 65), [(0, 1), (0, 2), (1, 3), (2, 3)]):
        for one, other in product(range(1, 9), repeat=2):
            sizes = {"world_size": world, DEGREES[first]: one, DEGREES[second]: other}
            if world % (one * other):
                refusal(**sizes)
                continue
            layout = ParallelLayout(**sizes)
            assert layout.model_parallel_size == one * other
            assert layout.data_parallel_size * one * other == world


def test_the_equation_holds_for_all_four_degrees_together() -> None:
    for degrees in product((1, 2, 3, 4), repeat=4):
        for data_parallel in (1, 2, 5):
            model = degrees[0] * degrees[1] * degrees[2] * degrees[3]
            layout = ParallelLayout(world_size=model * data_parallel, **dict(zip(DEGREES, degrees, strict=True)))
            assert layout.model_parallel_size == model
            assert layout.data_parallel_size == data_parallel
            assert layout.pipeline_stage_size * layout.pipeline_parallel_size == layout.world_size


def test_expert_parallel_regroups_a_pipeline_stage_and_leaves_data_parallel_alone() -> None:
    for world, pipeline, tensor, expert in product(range(1, 33), (1, 2, 3), (1, 2), range(1, 9)):
        sizes = {
            "world_size": world,
            "pipeline_parallel_size": pipeline,
            "tensor_parallel_size": tensor,
            "expert_parallel_size": expert,
        }
        if not fits(sizes):
            refusal(**sizes)
            continue
        layout = ParallelLayout(**sizes)
        assert layout.expert_data_parallel_size * expert * pipeline == world
        assert layout.data_parallel_size == replace(layout, expert_parallel_size=1).data_parallel_size


def test_experts_may_spread_over_ranks_that_share_samples() -> None:
    # Ulysses over all eight ranks with one expert group over the same eight: data parallel is 1, DeepSpeed runs it.
    layout = ParallelLayout(world_size=8, sequence_parallel_size=8, expert_parallel_size=8)
    assert layout.data_parallel_size == 1
    assert layout.expert_data_parallel_size == 1


def test_experts_split_like_the_rest_of_the_model_divide_data_parallel() -> None:
    layout = ParallelLayout(
        world_size=16, tensor_parallel_size=2, expert_parallel_size=4, expert_tensor_parallel_size=2
    )
    assert layout.expert_data_parallel_size == layout.data_parallel_size // 4 == 2


@pytest.mark.engine
def test_deepspeed_divides_experts_in_the_same_way() -> None:
    folding = pytest.importorskip("deepspeed.module_inject.auto_ep_folding")
    for world, pipeline, tensor, expert, expert_tensor in product((8, 12, 24), (1, 2), (1, 2, 4), range(1, 9), (1, 2)):
        if world % (pipeline * tensor):
            continue  # DeepSpeed checks this elsewhere
        sizes = {
            "world_size": world,
            "pipeline_parallel_size": pipeline,
            "tensor_parallel_size": tensor,
            "expert_parallel_size": expert,
            "expert_tensor_parallel_size": expert_tensor,
        }
        deepspeeds = dict(zip(("world_size", "pp_size", "tp_size", "ep_size", "etp_size"), sizes.values(), strict=True))
        if not fits(sizes):
            refusal(**sizes)
            with pytest.raises(ValueError, match="must divide the stage size"):
                folding.build_folding_spec(**deepspeeds)
            continue
        layout, spec = ParallelLayout(**sizes), folding.build_folding_spec(**deepspeeds)
        assert (layout.pipeline_stage_size, layout.data_parallel_size) == (spec.stage_size, spec.dp_size)
        assert layout.expert_data_parallel_size == spec.edp_size


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [0, -1, True, False, None, 2.0, "2", [2]])
def test_what_is_no_positive_integer_is_refused_in_every_field(field: str, value: object) -> None:
    error = refusal(**{"world_size": 8, field: value})
    assert error.indivisible is None
    assert error.legal == {}
    assert " must be " in str(error)


def test_a_bad_field_is_named_in_words() -> None:
    assert str(refusal(world_size=0)) == "world must be at least 1, not 0"
    assert str(refusal(world_size=8, tensor_parallel_size="2")) == "tensor parallel must be an integer, not '2'"
    assert str(refusal(world_size=8, expert_tensor_parallel_size=-3)) == (
        "expert tensor parallel must be at least 1, not -3"
    )


def test_an_uneven_world_names_the_equation_the_remainder_and_both_neighbours() -> None:
    error = refusal(world_size=12, tensor_parallel_size=2, pipeline_parallel_size=4)
    assert str(error) == (
        "world 12 is not a multiple of tensor 2 x pipeline 4 = 8 (remainder 4); nearest worlds: 8, 16"
    )
    assert error.remedy == "launch 8 or 16 ranks, set tensor parallel to 1 or 3, or set pipeline parallel to 3 or 6"
    assert error.indivisible == Indivisible(dividend=12, divisor=8)
    assert error.legal == {
        "world_size": Neighbours(below=8, above=16),
        "tensor_parallel_size": Neighbours(below=1, above=3),
        "pipeline_parallel_size": Neighbours(below=3, above=6),
    }


def test_a_world_smaller_than_the_model_has_one_neighbour() -> None:
    error = refusal(world_size=3, tensor_parallel_size=4)
    assert str(error) == "world 3 is not a multiple of tensor 4 (remainder 3); nearest worlds: 4"
    assert error.remedy == "launch 4 ranks, or set tensor parallel to 3"


def test_context_and_sequence_parallel_both_divide_and_are_both_named() -> None:
    error = refusal(world_size=8, context_parallel_size=2, sequence_parallel_size=3)
    assert str(error).startswith("world 8 is not a multiple of context 2 x sequence 3 = 6 (remainder 2)")


def test_the_worlds_named_fit_the_experts_too() -> None:
    error = refusal(world_size=12, tensor_parallel_size=8, expert_parallel_size=3)
    assert str(error) == "world 12 is not a multiple of tensor 8 (remainder 4); nearest worlds: 24"


def test_experts_that_do_not_fit_the_world_are_refused_with_the_equation() -> None:
    error = refusal(world_size=12, expert_parallel_size=8)
    assert str(error) == "world 12 is not a multiple of expert 8 (remainder 4); nearest expert sizes: 6, 12"
    assert error.remedy == "launch 8 or 16 ranks, or set expert parallel to 6 or 12"


def test_experts_that_do_not_fit_a_pipeline_stage_are_refused_with_the_equation() -> None:
    error = refusal(world_size=24, pipeline_parallel_size=2, expert_parallel_size=8)
    assert str(error) == (
        "world 24 / pipeline 2 = 12 is not a multiple of expert 8 (remainder 4); nearest expert sizes: 6, 12"
    )
    assert error.indivisible == Indivisible(dividend=12, divisor=8)
    assert error.legal["pipeline_parallel_size"] == Neighbours(below=1, above=3)


def test_no_expert_size_is_named_where_none_would_do() -> None:
    error = refusal(world_size=24, expert_parallel_size=2, expert_tensor_parallel_size=5)
    assert str(error) == "world 24 is not a multiple of expert 2 x expert tensor 5 = 10 (remainder 4)"
    assert error.remedy == "launch 20 or 30 ranks, or set expert tensor parallel to 4 or 6"


def test_every_legal_value_makes_the_layout_fit_and_nothing_between_does() -> None:
    refused = 0
    for sizes in product((6, 8, 12), (1, 2, 3), (1, 2, 4), (1, 2), (1,), (1, 3, 4), (1, 2)):
        layout = dict(zip(FIELDS, sizes, strict=True))
        if fits(layout):
            ParallelLayout(**layout)
            continue
        refused += 1
        legal = refusal(**layout).legal
        for field, written in layout.items():
            if written == 1:
                assert field not in legal
                continue
            values = [value for value in range(1, 300) if fits(layout | {field: value})]
            assert legal.get(field, Neighbours(below=None, above=None)) == Neighbours(
                below=max((value for value in values if value < written), default=None),
                above=min((value for value in values if value > written), default=None),
            ), (layout, field)
    assert refused > 50


@given(st.integers(min_value=1), st.integers(min_value=1, max_value=10**40), st.integers(min_value=1, max_value=10**40))
def test_a_huge_layout_is_divided_exactly_or_refused(world: int, tensor: int, pipeline: int) -> None:
    if world % (tensor * pipeline):
        refusal(world_size=world, tensor_parallel_size=tensor, pipeline_parallel_size=pipeline)
        world *= tensor * pipeline
    layout = ParallelLayout(world_size=world, tensor_parallel_size=tensor, pipeline_parallel_size=pipeline)
    assert layout.data_parallel_size * tensor * pipeline == world


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({}, "world 64 = data parallel 64"),
        ({"tensor_parallel_size": 2}, "world 64 / tensor 2 = data parallel 32"),
        (
            {"tensor_parallel_size": 2, "pipeline_parallel_size": 4},
            "world 64 / (tensor 2 x pipeline 4) = data parallel 8",
        ),
        (
            {"context_parallel_size": 4, "sequence_parallel_size": 2},
            "world 64 / (context 4 x sequence 2) = data parallel 8",
        ),
        (
            {"pipeline_parallel_size": 2, "expert_parallel_size": 8},
            "world 64 / pipeline 2 = data parallel 32; pipeline stage 32 / expert 8 = expert data parallel 4",
        ),
        (
            {"expert_parallel_size": 8, "expert_tensor_parallel_size": 2},
            "world 64 = data parallel 64; pipeline stage 64 / (expert 8 x expert tensor 2) = expert data parallel 4",
        ),
    ],
)
def test_the_description_is_the_equation_without_the_ones(sizes: dict[str, int], said: str) -> None:
    assert ParallelLayout(world_size=64, **sizes).describe() == said


def test_a_layout_is_a_value_that_can_not_change() -> None:
    layout = ParallelLayout(world_size=8)
    with pytest.raises(FrozenInstanceError):
        layout.world_size = 16  # type: ignore[misc]
    assert replace(layout, world_size=16).data_parallel_size == 16
    assert layout == ParallelLayout(world_size=8)
