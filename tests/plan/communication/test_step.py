"""A rank's share of a model, and everything that it sends in an optimizer step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_accum.batch import ParallelLayout
from ds_accum.errors import LayoutError, UsageError
from ds_accum.plan.communication import rank_share, replica_size, step_communication, zero_transfers
from ds_accum.plan.shapes import model_names, read_shape
from ds_accum.plan.training import TrainingSetup

LLAMA = read_shape("llama-2-7b")
MIXTRAL = read_shape("mixtral-8x7b")
TIED = read_shape("gpt-125m")


def training(stage: int = 1, accumulation: int = 4, **options: Any) -> TrainingSetup:
    values = {"micro_batch_size": 1, "sequence_length": 4096, **options}
    return TrainingSetup(zero_stage=stage, gradient_accumulation_steps=accumulation, **values)


@pytest.mark.parametrize("name", model_names())
def test_one_rank_alone_holds_the_whole_model(name: str) -> None:
    shape = read_shape(name)
    share = rank_share(shape, ParallelLayout(world_size=1), 0)
    assert share.parameters + share.expert_parameters == shape.parameters
    assert (share.num_layers, share.num_expert_layers) == (shape.num_layers, shape.num_expert_layers)


@pytest.mark.parametrize("name", model_names())
@pytest.mark.parametrize("stages", [2, 3, 8])
def test_pipeline_stages_hold_the_model_together_and_tied_embeddings_twice(name: str, stages: int) -> None:
    shape = read_shape(name)
    layout = ParallelLayout(world_size=stages, pipeline_parallel_size=stages)
    shares = [rank_share(shape, layout, stage) for stage in range(stages)]
    held = sum(share.parameters + share.expert_parameters for share in shares)
    assert held - shares[-1].tied_parameters == shape.parameters
    assert bool(shares[0].tied_parameters) == shape.tied_embeddings
    assert sum(share.num_layers for share in shares) == shape.num_layers


def test_tensor_parallel_ranks_hold_together_what_is_cut_once_and_what_is_whole_each() -> None:
    layout = ParallelLayout(world_size=8, tensor_parallel_size=8)
    share = rank_share(LLAMA, layout, 0)
    assert 8 * (share.parameters - share.whole_parameters) + share.whole_parameters == LLAMA.parameters
    assert share.whole_parameters == (2 * 32 + 1) * 4096  # the norms


def test_experts_are_dealt_over_expert_parallel_ranks() -> None:
    whole = rank_share(MIXTRAL, ParallelLayout(world_size=8), 0)
    dealt = rank_share(MIXTRAL, ParallelLayout(world_size=8, expert_parallel_size=8), 0)
    assert dealt.expert_parameters * 8 == whole.expert_parameters
    assert dealt.parameters == whole.parameters


def test_chosen_layers_are_those_of_the_stage() -> None:
    layout = ParallelLayout(world_size=2, pipeline_parallel_size=2)
    assert rank_share(LLAMA, layout, 0, layers_per_stage=(20, 12)).num_layers == 20
    with pytest.raises(LayoutError, match="layers per stage 20, 11 are not 32 layers on 2 stages"):
        rank_share(LLAMA, layout, 0, layers_per_stage=(20, 11))


def test_there_is_no_stage_beyond_the_last() -> None:
    with pytest.raises(UsageError, match="there is no pipeline stage 2 among 2"):
        rank_share(LLAMA, ParallelLayout(world_size=2, pipeline_parallel_size=2), 2)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_with_data_parallel_alone_the_step_is_what_the_stage_exchanges(stage: int) -> None:
    layout = ParallelLayout(world_size=8)
    found = step_communication(LLAMA, layout, training(stage))
    assert found.transfers == zero_transfers(
        stage,
        parameters=LLAMA.parameters,
        ranks=8,
        gradient_accumulation_steps=4,
        parameter_bytes=2,
        gradient_bytes=2,
    )


def test_context_and_sequence_parallel_ranks_reduce_together_at_data_parallel_1() -> None:
    layout = ParallelLayout(world_size=8, context_parallel_size=2, sequence_parallel_size=4)
    assert (layout.data_parallel_size, replica_size(layout)) == (1, 8)
    gradients = step_communication(LLAMA, layout, training(0)).transfers[0]
    # DeepSpeed sends gradients in float32 under sequence parallel.
    assert (gradients.ranks, gradients.bytes_each) == (8, 4 * LLAMA.parameters)


def test_experts_and_the_rest_are_reduced_over_groups_of_their_own() -> None:
    layout = ParallelLayout(world_size=16, expert_parallel_size=4)
    found = step_communication(MIXTRAL, layout, training(0))
    groups = {transfer.group: transfer.ranks for transfer in found.transfers}
    assert groups == {"data": 16, "expert data": 4, "expert": 4}


@pytest.mark.parametrize(("dtype", "gathers"), [("bf16", True), ("fp16", False), ("fp32", False)])
def test_a_pipeline_in_bf16_gathers_parameters_at_stage_0_as_at_stage_1(dtype: str, gathers: bool) -> None:
    piped = ParallelLayout(world_size=8, pipeline_parallel_size=2)
    at_0, at_1 = (step_communication(LLAMA, piped, training(stage, dtype=dtype)).transfers for stage in (0, 1))
    assert (at_0 == at_1) is gathers
    assert ("parameters" in {transfer.name for transfer in at_0}) is gathers
    alone = step_communication(LLAMA, ParallelLayout(world_size=8), training(0, dtype=dtype)).transfers
    assert "parameters" not in {transfer.name for transfer in alone}


def test_tied_embeddings_are_summed_over_the_first_and_the_last_stage() -> None:
    layout = ParallelLayout(world_size=4, pipeline_parallel_size=4)
    names = [
        {transfer.name for transfer in step_communication(TIED, layout, training(), pipeline_stage=stage).transfers}
        for stage in range(4)
    ]
    assert ["tied embedding gradients" in stage for stage in names] == [True, False, False, True]


@pytest.mark.parametrize(
    ("stage", "dtype", "accumulated", "sent", "size"),
    [
        (1, "bf16", "fp32", "bf16", 4),  # BF16_Optimizer: as accumulated
        (1, "bf16", "fp32", "fp32", 4),
        (0, "bf16", None, "fp32", 2),
        (1, "bf16", None, "fp32", 2),  # else the parameter's own
        (1, "fp16", "fp32", "fp32", 2),
        (1, "fp32", None, "bf16", 4),
    ],
)
def test_gradients_of_tied_embeddings_are_summed_as_they_are_and_not_in_the_dtype_that_is_sent(
    stage: int, dtype: str, accumulated: str | None, sent: str, size: int
) -> None:
    layout = ParallelLayout(world_size=4, pipeline_parallel_size=2)
    setup = training(stage, dtype=dtype, grad_accum_dtype=accumulated, communication_dtype=sent)
    found = step_communication(TIED, layout, setup, pipeline_stage=0).transfers
    (tied,) = (transfer for transfer in found if transfer.name == "tied embedding gradients")
    assert tied.bytes_each == size * TIED.vocabulary_size * TIED.hidden_size


@given(
    name=st.sampled_from(("llama-2-7b", "mixtral-8x7b", "gpt-125m")),
    tensor=st.sampled_from((1, 2, 4)),
    pipeline=st.sampled_from((1, 2, 4)),
    data=st.sampled_from((1, 2)),
    stage=st.integers(0, 3),
    accumulation=st.integers(1, 16),
)
@settings(max_examples=60, deadline=None)
def test_the_stage_that_is_told_of_sends_most(
    name: str, tensor: int, pipeline: int, data: int, stage: int, accumulation: int
) -> None:
    layout = ParallelLayout(
        world_size=tensor * pipeline * data, tensor_parallel_size=tensor, pipeline_parallel_size=pipeline
    )
    shape, setup = read_shape(name), training(stage, accumulation, sequence_length=1024)
    told = step_communication(shape, layout, setup)
    each = [step_communication(shape, layout, setup, pipeline_stage=index) for index in range(pipeline)]
    assert told.sent_bytes == max(one.sent_bytes for one in each)
    groups = ("data", "expert data", "tensor", "pipeline", "context", "sequence", "expert")
    assert sum(told.sent_bytes_of(group) for group in groups) == told.sent_bytes  # type: ignore[arg-type]


@given(accumulation=st.integers(1, 64))
@settings(deadline=None)
def test_what_micro_batches_send_grows_with_them_and_what_the_step_sends_does_not(accumulation: int) -> None:
    layout = ParallelLayout(world_size=16, tensor_parallel_size=2, pipeline_parallel_size=2, context_parallel_size=2)
    one = step_communication(LLAMA, layout, training(1, 1), pipeline_stage=0)
    more = step_communication(LLAMA, layout, training(1, accumulation), pipeline_stage=0)
    for group in ("tensor", "pipeline", "context"):
        assert more.sent_bytes_of(group) == accumulation * one.sent_bytes_of(group)  # type: ignore[arg-type]
    assert more.sent_bytes_of("data") == one.sent_bytes_of("data")


def test_a_sequence_that_does_not_divide_is_refused_with_the_nearest_sizes() -> None:
    layout = ParallelLayout(world_size=4, context_parallel_size=4)
    with pytest.raises(LayoutError, match=r"sequence length 30 is not a multiple of .* = 4 \(remainder 2\)") as caught:
        step_communication(LLAMA, layout, training(sequence_length=30))
    assert caught.value.remedy == "make context x sequence parallel 3 or 5, or pad the sequence"


def test_norm_gradients_under_megatron_sequence_parallel_are_summed_each_micro_batch_or_once() -> None:
    layout = ParallelLayout(world_size=8, tensor_parallel_size=8)
    times = []
    for when in ("each_micro_batch", "deferred"):
        setup = training(megatron_sequence_parallel=True, sequence_norm_gradients=when)
        (norms,) = [
            transfer
            for transfer in step_communication(LLAMA, layout, setup).transfers
            if transfer.name == "gradients of norms"
        ]
        times.append(norms.times)
    assert times == [4, 1]
