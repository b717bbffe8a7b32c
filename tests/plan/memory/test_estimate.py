"""What has to hold of every estimate, whatever the model, the layout and the training."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_accum.batch import ParallelLayout
from ds_accum.errors import ConfigError, DSAccumError, LayoutError
from ds_accum.plan.memory import Margin, MemoryEstimate, estimate_memory
from ds_accum.plan.memory.holdings import holdings_of
from ds_accum.plan.memory.stages import Stage, stages_of
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.shapes import model_names, read_shape
from ds_accum.plan.training import OPTIMIZERS, TrainingSetup

USUAL: dict[str, Any] = {"micro_batch_size": 1, "gradient_accumulation_steps": 8, "sequence_length": 2048}


def training(**changed: Any) -> TrainingSetup:
    return TrainingSetup(**{"zero_stage": 1, **USUAL, **changed})


def peak(name: str, layout: ParallelLayout, **changed: Any) -> int:
    return estimate_memory(read_shape(name), layout, training(**changed)).peak_bytes


PIPELINE = ParallelLayout(world_size=64, pipeline_parallel_size=8)
LLAMA = read_shape("llama-2-7b")

setups = st.builds(
    training,
    zero_stage=st.integers(0, 3),
    micro_batch_size=st.integers(1, 8),
    gradient_accumulation_steps=st.integers(1, 64),
    sequence_length=st.sampled_from([1024, 4096]),
    dtype=st.sampled_from(["fp32", "bf16", "fp16"]),
    optimizer=st.sampled_from(OPTIMIZERS),
    recompute=st.sampled_from(["none", "selective", "full"]),
    flash_attention=st.booleans(),
    fused_kernels=st.booleans(),
    dropout=st.booleans(),
    megatron_sequence_parallel=st.booleans(),
)
layouts = st.builds(
    ParallelLayout,
    world_size=st.sampled_from([256, 512]),
    tensor_parallel_size=st.sampled_from([1, 2, 8]),
    pipeline_parallel_size=st.sampled_from([1, 4]),
    context_parallel_size=st.sampled_from([1, 2]),
    sequence_parallel_size=st.sampled_from([1, 2]),
)


def of(name: str, layout: ParallelLayout, setup: TrainingSetup) -> MemoryEstimate:
    """The estimate, for a pipeline with the stage that it allows."""
    if layout.pipeline_parallel_size > 1:
        setup = replace(setup, zero_stage=min(setup.zero_stage, 1))
    return estimate_memory(read_shape(name), layout, setup)


@settings(deadline=None, max_examples=150)
@given(name=st.sampled_from(model_names()), layout=layouts, setup=setups)
def test_every_line_is_a_number_of_bytes_that_says_where_it_comes_from(
    name: str, layout: ParallelLayout, setup: TrainingSetup
) -> None:
    try:
        estimate = of(name, layout, setup)
    except LayoutError:
        return
    for stage in estimate.stages:
        for line in stage.lines:
            assert isinstance(line.bytes, int) and line.bytes >= 0
            assert line.formula and "{" not in line.formula and line.source and line.moments
        assert stage.device_bytes == max(stage.bytes_at(moment) for line in stage.lines for moment in line.moments)


@settings(deadline=None, max_examples=60)
@given(name=st.sampled_from(model_names()), layout=layouts, setup=setups)
def test_the_stages_left_out_are_never_the_fullest(name: str, layout: ParallelLayout, setup: TrainingSetup) -> None:
    setup = replace(setup, zero_stage=min(setup.zero_stage, 1))
    try:
        whole = estimate_memory(read_shape(name), layout, setup, all_stages=True)
    except LayoutError:
        return
    assert len(whole.stages) == layout.pipeline_parallel_size
    assert estimate_memory(read_shape(name), layout, setup).peak_bytes == whole.peak_bytes


@settings(deadline=None, max_examples=60)
@given(layout=layouts, setup=setups)
def test_more_recompute_never_keeps_more(layout: ParallelLayout, setup: TrainingSetup) -> None:
    kept = [
        sum(
            line.bytes
            for line in of("llama-2-7b", layout, replace(setup, recompute=recompute)).stages[0].lines
            if line.name.startswith("kept: ")
        )
        for recompute in ("none", "selective", "full")
    ]
    assert kept == sorted(kept, reverse=True)


@settings(deadline=None)
@given(tensor=st.sampled_from([1, 2, 4, 8]), pipeline=st.sampled_from([1, 2, 4, 8]))
def test_the_ranks_of_a_model_hold_each_parameter_once_but_for_what_is_replicated(tensor: int, pipeline: int) -> None:
    layout = ParallelLayout(world_size=tensor * pipeline, tensor_parallel_size=tensor, pipeline_parallel_size=pipeline)
    held = [holdings_of(LLAMA, layout, stage) for stage in stages_of(LLAMA, pipeline, None, 1)]
    replicated = sum(one.replicated for one in held)
    assert sum((one.elements - one.replicated) * tensor for one in held) + replicated == LLAMA.parameters
    assert replicated == (2 * LLAMA.num_layers + 1) * LLAMA.hidden_size


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3"])
@pytest.mark.parametrize("expert", [1, 2, 8])
def test_experts_are_cut_over_expert_parallel_ranks_and_all_else_is_not(name: str, expert: int) -> None:
    shape = read_shape(name)
    layout = ParallelLayout(world_size=16, expert_parallel_size=expert)
    shared, experts = holdings_of(shape, layout, stages_of(shape, 1, None, 1)[0]).kinds
    assert shared.elements + experts.elements * expert == shape.parameters
    assert (shared.shards, experts.shards) == (16, 16 // expert)


def test_1f1b_holds_as_many_micro_batches_as_stages_are_left_and_gpipe_all() -> None:
    setup = training(gradient_accumulation_steps=32)
    in_flight = [
        [stage.forwards_in_flight for stage in estimate_memory(LLAMA, PIPELINE, each, all_stages=True).stages]
        for each in (setup, replace(setup, schedule="gpipe"))
    ]
    assert in_flight == [list(range(8, 0, -1)), [32] * 8]


def test_interleaving_holds_v_p_plus_p_minus_1_chunks_on_the_first_stage() -> None:
    setup = training(gradient_accumulation_steps=32, schedule="interleaved", virtual_stages=4)
    stages = estimate_memory(LLAMA, PIPELINE, setup, all_stages=True).stages
    assert stages[0].forwards_in_flight == 4 * 8 + 8 - 1
    assert stages[-1].forwards_in_flight == 3 * 8 + 1


def test_few_micro_batches_are_all_that_is_in_flight() -> None:
    setup = training(gradient_accumulation_steps=3)
    stages = estimate_memory(LLAMA, PIPELINE, setup, all_stages=True).stages
    assert [stage.forwards_in_flight for stage in stages] == [3] * 6 + [2, 1]


def test_accumulation_changes_nothing_but_gradients() -> None:
    alone, many = (
        estimate_memory(LLAMA, ParallelLayout(world_size=8), training(zero_stage=2, gradient_accumulation_steps=steps))
        for steps in (1, 64)
    )
    for part in ("parameters", "optimizer", "buffers", "activations", "logits"):
        assert alone.stages[0].part_bytes(part, "loss") == many.stages[0].part_bytes(part, "loss")
    assert alone.stages[0].part_bytes("gradients", "loss") == 0
    assert many.stages[0].part_bytes("gradients", "loss") > 0


def test_more_accumulation_than_two_costs_nothing_more() -> None:
    layout = ParallelLayout(world_size=8)
    assert peak("llama-2-7b", layout, gradient_accumulation_steps=2) == peak(
        "llama-2-7b", layout, gradient_accumulation_steps=1024
    )


def test_a_gradient_is_kept_whole_where_its_tensor_reaches_into_a_partition() -> None:
    """LLaMA-2-7B on 1,024 ranks: a partition is 6.6e6 elements; one reaches into the output, and what is before it."""
    held = holdings_of(LLAMA, ParallelLayout(world_size=1024), stages_of(LLAMA, 1, None, 1)[0])
    assert held.flat_partition == -(-LLAMA.parameters // 2048) * 2
    assert held.touched == 32_000 * 4096 + 4096 + 4096 * 11_008


@settings(deadline=None, max_examples=50)
@given(ranks=st.integers(257, 4000))
def test_what_reaches_into_a_partition_is_told_without_looking_at_every_rank(ranks: int) -> None:
    """Of a model of a few equal layers, beside the same asked of every rank."""
    shape = read_shape("gpt-125m")
    held = holdings_of(shape, ParallelLayout(world_size=ranks), stages_of(shape, 1, None, 1)[0])
    (kind,) = held.kinds
    edges = [0]
    for elements, count in kind.runs:
        for _ in range(count):
            edges.append(edges[-1] + elements)
    most = 0
    for rank in range(ranks):
        start, end = rank * kind.flat_partition, min((rank + 1) * kind.flat_partition, edges[-1])
        if start < end:
            touched = [b - a for a, b in pairwise(edges) if a < end and b > start]
            most = max(most, sum(touched))
    assert most <= held.touched <= most + kind.flat_partition + 4 * 768 * 768


def test_layers_that_do_not_divide_go_behind_the_first_stage() -> None:
    shape = read_shape("deepseek-v3")
    counts = [len(stage.layers) for stage in stages_of(shape, 16, None, 1)]
    assert (sum(counts), counts[0], counts[-1]) == (61, 3, 3)
    assert set(counts) == {3, 4}


def test_layers_may_be_spread_by_hand() -> None:
    uneven = training(layers_per_stage=(2, 4, 4, 4, 4, 5, 5, 4))
    stages = estimate_memory(LLAMA, PIPELINE, uneven, all_stages=True).stages
    assert [stage.num_layers for stage in stages] == [2, 4, 4, 4, 4, 5, 5, 4]
    with pytest.raises(LayoutError, match="are not 32 layers on 8 stages"):
        estimate_memory(LLAMA, PIPELINE, training(layers_per_stage=(4, 4)))


def test_the_ends_of_the_model_are_on_the_first_and_the_last_stage() -> None:
    first, *middle, last = stages_of(LLAMA, 8, None, 1)
    assert (first.has_embedding, first.has_head) == (True, False)
    assert (last.has_embedding, last.has_head) == (False, True)
    assert all(stage == Stage(layers=(False,) * 4, has_embedding=False, has_head=False) for stage in middle)


def test_tied_embeddings_are_on_both_ends_of_a_pipeline() -> None:
    shape = read_shape("gpt-125m")
    layout = ParallelLayout(world_size=4, pipeline_parallel_size=4)
    held = [holdings_of(shape, layout, stage).elements for stage in stages_of(shape, 4, None, 1)]
    assert sum(held) == shape.parameters + shape.vocabulary_size * shape.hidden_size


def test_logits_are_cut_by_tensor_parallelism_and_the_margin_is_stated() -> None:
    layout = ParallelLayout(world_size=8, tensor_parallel_size=8)
    estimate = estimate_memory(LLAMA, layout, training(), margin=Margin(context_bytes=0, share=0))
    assert estimate.part_bytes("margin") == 0
    (logits,) = (line.bytes for line in estimate.fullest.lines if line.name == "logits in float32")
    assert logits == 4 * 2048 * 32_000 // 8
    with_margin = estimate_memory(LLAMA, layout, training())
    assert with_margin.peak_bytes == estimate.peak_bytes + 1024**3 + round(0.05 * estimate.peak_bytes)
    (line,) = [line for line in with_margin.fullest.lines if line.part == "margin"]
    assert line.name == "margin for what is not counted"
    assert line.bytes and set(line.moments) >= {with_margin.fullest.fullest_moment}  # it is in the sum itself


def test_the_gradients_of_norms_under_sequence_parallelism_are_flattened_or_kept() -> None:
    layout = ParallelLayout(world_size=8, tensor_parallel_size=8)
    norms = (2 * LLAMA.num_layers + 1) * LLAMA.hidden_size

    def line_of(**changed: Any) -> Any:
        lines = estimate_memory(LLAMA, layout, training(**changed)).fullest.lines
        return [line for line in lines if line.name.startswith("gradients of norms")]

    (flattened,) = line_of(megatron_sequence_parallel=True)
    (kept,) = line_of(megatron_sequence_parallel=True, sequence_norm_gradients="deferred", grad_accum_dtype="fp32")
    assert (flattened.bytes, flattened.moments) == (2 * norms, ("reduction",))
    assert kept.bytes == 4 * norms and len(kept.moments) == 5
    assert line_of() == []


@pytest.mark.parametrize("split", ["context_parallel_size", "sequence_parallel_size"])
def test_splitting_the_sequence_splits_what_a_rank_keeps_of_it(split: str) -> None:
    whole, half = (
        estimate_memory(LLAMA, ParallelLayout(world_size=16, **{split: ranks}), training()).stages[0]
        for ranks in (1, 2)
    )
    for part in ("activations", "logits"):
        assert half.part_bytes(part, "loss") * 2 == whole.part_bytes(part, "loss")
    # Its ranks hold the same parameters, so ZeRO cuts over them too.
    assert half.part_bytes("optimizer", "update") == whole.part_bytes("optimizer", "update")


def test_a_capacity_factor_bounds_what_experts_are_sent() -> None:
    layout = ParallelLayout(world_size=8, expert_parallel_size=8)
    kept = [
        peak("mixtral-8x7b", layout, expert_capacity_factor=factor, sequence_length=8192, micro_batch_size=4)
        for factor in (None, 1.0, 1.25, 2.0)
    ]
    assert kept[0] == kept[1] < kept[2] < kept[3]


@pytest.mark.parametrize(
    "changed",
    [
        {"micro_batch_size": 0},
        {"micro_batch_size": 1.5},
        {"gradient_accumulation_steps": True},
        {"sequence_length": -1},
        {"sequence_length": 10**40},
        {"zero_stage": 4},
        {"zero_stage": -1},
        {"zero_stage": "2"},
        {"dtype": "fp8"},
        {"dtype": None},
        {"optimizer": "AdamW"},
        {"recompute": "some"},
        {"schedule": "interleaved"},
        {"virtual_stages": 2},
        {"zero_stage": 0, "offload_optimizer": "cpu"},
        {"zero_stage": 2, "offload_parameters": "cpu"},
        {"zero_stage": 0, "grad_accum_dtype": "fp32"},
        {"expert_capacity_factor": float("nan")},
        {"expert_capacity_factor": 0},
        {"layers_per_stage": [4, 4]},
        {"layers_per_stage": ()},
        {"layers_per_stage": (4, "4")},
        {"expert_capacity_factor": float("inf")},
    ],
)
def test_a_training_that_can_not_be_is_refused_with_a_remedy(changed: dict[str, Any]) -> None:
    with pytest.raises(DSAccumError) as caught:
        training(**changed)
    assert caught.value.remedy and len(str(caught.value)) < 200


@pytest.mark.parametrize("given_", [{"share": -1}, {"share": float("nan")}, {"context_bytes": -1}, {"share": "5 %"}])
def test_a_margin_below_zero_is_refused(given_: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Margin(**given_)


@pytest.mark.parametrize(
    ("layout", "changed", "sentence"),
    [
        ({"tensor_parallel_size": 5, "world_size": 5}, {}, "32 attention heads can't be cut in tensor 5"),
        ({"pipeline_parallel_size": 64, "world_size": 64}, {}, "32 layers can't fill 64 pipeline stages"),
        ({"pipeline_parallel_size": 2, "world_size": 4}, {"zero_stage": 2}, "refuses ZeRO stage 2"),
        (
            {"pipeline_parallel_size": 3, "world_size": 3},
            {"schedule": "interleaved", "virtual_stages": 2, "gradient_accumulation_steps": 9},
            r"32 layers are no multiple of 3 stages x 2 virtual stages = 6 \(remainder 2\)",
        ),
        (
            {"pipeline_parallel_size": 4, "world_size": 4},
            {"schedule": "interleaved", "virtual_stages": 2, "gradient_accumulation_steps": 9},
            "9 micro-batches can't be interleaved over 4 pipeline stages",
        ),
        ({"expert_parallel_size": 2, "world_size": 4}, {}, "llama-2-7b has no experts to spread"),
    ],
)
def test_a_layout_that_can_not_be_is_refused_with_its_equation(
    layout: dict[str, int], changed: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(LayoutError, match=sentence) as caught:
        estimate_memory(LLAMA, ParallelLayout(**layout), training(**changed))
    assert caught.value.remedy


def test_a_shape_with_one_of_everything_is_estimated() -> None:
    shape = ModelShape(
        name="one",
        num_layers=1,
        hidden_size=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_size=1,
        ffn_hidden_size=1,
        vocabulary_size=1,
        gated_mlp=False,
        tied_embeddings=True,
        attention_bias=False,
        mlp_bias=False,
        norm="rmsnorm",
    )
    assert shape.parameters == 10
    for stage in range(4):
        estimate = estimate_memory(shape, ParallelLayout(world_size=4096), training(zero_stage=stage))
        assert estimate.peak_bytes > 0


def test_logits_are_gone_when_the_first_layer_is_recomputed() -> None:
    stage = estimate_memory(LLAMA, ParallelLayout(world_size=8), training(recompute="full")).fullest
    moments = {line.name: line.moments for line in stage.lines}
    assert moments["logits in float32"] == ("loss",)
    assert moments["what is recomputed of one layer"] == ("backward",)
    assert moments["kept: inputs of layers"] == ("loss", "backward")


def test_the_gradient_of_a_tied_output_waits_for_that_of_the_embedding() -> None:
    shape = read_shape("gpt-125m")
    name = "gradient of the output, waiting for the embedding's"

    def waiting(layout: ParallelLayout) -> list[int]:
        stages = estimate_memory(shape, layout, training()).stages
        return [line.bytes for stage in stages for line in stage.lines if line.name == name]

    assert waiting(ParallelLayout(world_size=4)) == [2 * shape.vocabulary_size * shape.hidden_size]
    # On the two ends of a pipeline each has its own copy.
    assert waiting(ParallelLayout(world_size=4, pipeline_parallel_size=4)) == []


@pytest.mark.parametrize("pipeline", [1, 2])
def test_bf16_optimizer_keeps_its_state_on_the_gpu_where_nvme_is_asked_for(pipeline: int) -> None:
    layout = ParallelLayout(world_size=8, pipeline_parallel_size=pipeline)
    kept, on_nvme, on_host = (
        estimate_memory(LLAMA, layout, training(grad_accum_dtype="fp32", offload_optimizer=place))
        for place in ("none", "nvme", "cpu")
    )
    assert on_nvme.stages == kept.stages
    assert (on_nvme.host_bytes, on_nvme.nvme_bytes) == (0, 0)
    assert on_host.host_bytes > 0
    # Without float32 accumulation it is no BF16_Optimizer, and NVMe is taken for the host.
    assert estimate_memory(LLAMA, layout, training(offload_optimizer="nvme")).host_bytes > 0


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_ulysses_reduces_in_float32_unless_told_otherwise(stage: int) -> None:
    layout = ParallelLayout(world_size=8, sequence_parallel_size=2)
    unsaid, narrow, wide = (
        estimate_memory(LLAMA, layout, training(zero_stage=stage, communication_dtype=sent)).stages
        for sent in (None, "bf16", "fp32")
    )
    assert unsaid == wide != narrow
    alone = ParallelLayout(world_size=8)
    unsaid, narrow = (
        estimate_memory(LLAMA, alone, training(zero_stage=stage, communication_dtype=sent)).stages
        for sent in (None, "bf16")
    )
    assert unsaid == narrow


def test_stage_3_sizes_its_bucket_by_what_ulysses_sends() -> None:
    buckets = []
    for size in (1, 2):
        layout = ParallelLayout(world_size=8, sequence_parallel_size=size)
        lines = estimate_memory(LLAMA, layout, training(zero_stage=3)).fullest.lines
        buckets.append(next(line.bytes for line in lines if line.name == "reduce bucket"))
    assert buckets == [2 * 500_000_000, 4 * 500_000_000]
