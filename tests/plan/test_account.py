"""The account of one optimizer step: its identities, and the worked numbers of the field."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_accum.batch import BatchLedger, ParallelLayout
from ds_accum.errors import LayoutError, UsageError
from ds_accum.plan.account import ModelSize, account_step
from ds_accum.plan.shapes import read_shape

DEGREE = st.sampled_from((1, 2, 4))
LLAMA = ModelSize.of(read_shape("llama-2-7b"))


def ledger(micro: int, data: int, accumulation: int) -> BatchLedger:
    return BatchLedger(micro_batch_size=micro, data_parallel_size=data, gradient_accumulation_steps=accumulation)


def test_two_splits_of_128() -> None:
    four_by_eight = account_step(ledger(4, 8, 4), ParallelLayout(world_size=8))
    eight_by_sixteen = account_step(ledger(8, 16, 1), ParallelLayout(world_size=16))
    assert four_by_eight.ledger.global_batch_size == eight_by_sixteen.ledger.global_batch_size == 128
    assert [stage.synchronizations for stage in four_by_eight.stages] == [1, 1, 4, 4]
    assert [stage.synchronizations for stage in eight_by_sixteen.stages] == [1, 1, 1, 1]


def test_1536_samples_of_2048_tokens() -> None:
    account = account_step(ledger(1, 64, 24), ParallelLayout(world_size=64), sequence_length=2048)
    assert account.tokens_per_step == 3_145_728


def test_data_parallel_1_synchronizes_0_times() -> None:
    account = account_step(ledger(4, 1, 8), ParallelLayout(world_size=1), model=LLAMA, sequence_length=16)
    for stage in account.stages:
        assert (stage.synchronizations, stage.parameter_gathers, stage.transfers) == (0, 0, ())


@given(pipeline=st.integers(1, 16), accumulation=st.integers(1, 32))
@settings(deadline=None)
def test_pipeline_parallel_multiplies_nothing(pipeline: int, accumulation: int) -> None:
    layout = ParallelLayout(world_size=2 * pipeline, pipeline_parallel_size=pipeline)
    account = account_step(ledger(3, 2, accumulation), layout)
    assert account.micro_batches_per_pipeline_stage == accumulation
    assert account.ledger.global_batch_size == 3 * 2 * accumulation


@given(
    data=DEGREE,
    tensor=DEGREE,
    pipeline=DEGREE,
    context=DEGREE,
    sequence=DEGREE,
    accumulation=st.integers(1, 16),
    coalesced=st.booleans(),
    known=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_the_counts_of_a_stage_are_those_of_its_transfers(
    data: int,
    tensor: int,
    pipeline: int,
    context: int,
    sequence: int,
    accumulation: int,
    coalesced: bool,
    known: bool,
) -> None:
    layout = ParallelLayout(
        world_size=data * tensor * pipeline * context * sequence,
        tensor_parallel_size=tensor,
        pipeline_parallel_size=pipeline,
        context_parallel_size=context,
        sequence_parallel_size=sequence,
    )
    model = LLAMA if known else ModelSize(parameters=10**9)
    account = account_step(
        ledger(1, data, accumulation), layout, sequence_length=4096, model=model, coalesced=coalesced
    )
    ranks = data * context * sequence
    for stage in account.stages:
        times = {transfer.name: transfer.times for transfer in stage.transfers}
        assert times.get("gradients", 0) == stage.synchronizations
        assert times.get("parameters", 0) == stage.parameter_gathers
        assert all(transfer.ranks == ranks for transfer in stage.transfers)
        assert stage.reduces_at_boundary == (stage.zero_stage < 2 or coalesced)
        assert (stage.synchronizations == 0) == (ranks == 1)
    assert {transfer.group for transfer in account.layer_transfers}.isdisjoint({"data", "expert data"})


def test_what_the_layers_exchange_does_not_depend_on_the_stage_and_needs_a_shape() -> None:
    layout = ParallelLayout(world_size=8, tensor_parallel_size=2)
    known = account_step(ledger(1, 4, 2), layout, sequence_length=128, model=LLAMA)
    assert [transfer.group for transfer in known.layer_transfers] == ["tensor", "tensor"]
    unknown = account_step(ledger(1, 4, 2), layout, sequence_length=128, model=ModelSize(parameters=LLAMA.parameters))
    assert unknown.layer_transfers == ()
    assert unknown.rank_parameters == (LLAMA.parameters // 2, 0)


def test_gradients_are_sent_in_the_dtype_that_is_asked_for() -> None:
    layout = ParallelLayout(world_size=2)
    for shape in (None, LLAMA.shape):
        bytes_each = []
        for dtype in (None, "fp32"):
            model = ModelSize(parameters=LLAMA.parameters, shape=shape, gradient_dtype=dtype)  # type: ignore[arg-type]
            account = account_step(ledger(1, 2, 1), layout, sequence_length=128, model=model)
            bytes_each.append(account.stages[0].transfers[0].bytes_each)
        assert bytes_each == [2 * LLAMA.parameters, 4 * LLAMA.parameters]


def test_a_batch_for_another_data_parallel_size_is_refused() -> None:
    with pytest.raises(UsageError, match=r"cut for data parallel 4, and world 8 / tensor 4 = data parallel 2"):
        account_step(ledger(1, 4, 1), ParallelLayout(world_size=8, tensor_parallel_size=4))


def test_numbers_beyond_any_training_are_refused() -> None:
    with pytest.raises(UsageError, match=r"global batch .* is beyond 10\^12"):
        account_step(ledger(10**400, 1, 1), ParallelLayout(world_size=1))
    with pytest.raises(UsageError, match=r"sequence length .* is beyond 10\^12"):
        account_step(ledger(1, 1, 1), ParallelLayout(world_size=1), sequence_length=10**13)
    with pytest.raises(UsageError, match=r"world .* is beyond 10\^12"):
        account_step(ledger(1, 1, 1), ParallelLayout(world_size=10**13, tensor_parallel_size=10**13))


def test_a_shape_says_its_own_parameters() -> None:
    with pytest.raises(UsageError, match="llama-2-7b has 6738415616 parameters, not 7"):
        ModelSize(parameters=7, shape=LLAMA.shape)


def test_a_sequence_that_the_layout_does_not_divide_is_refused() -> None:
    layout = ParallelLayout(world_size=4, context_parallel_size=4)
    with pytest.raises(LayoutError, match="sequence length 30"):
        account_step(ledger(1, 1, 1), layout, sequence_length=30, model=LLAMA)


@pytest.mark.parametrize("expert", [1, 2, 8])
def test_without_a_sequence_length_a_rank_still_has_its_own_experts_alone(expert: int) -> None:
    layout = ParallelLayout(
        world_size=32, pipeline_parallel_size=2, tensor_parallel_size=2, expert_parallel_size=expert
    )
    mixtral = ModelSize.of(read_shape("mixtral-8x7b"))
    without, given = (
        account_step(ledger(1, 8, 4), layout, model=mixtral, sequence_length=length) for length in (None, 4096)
    )
    assert without.rank_parameters == given.rank_parameters
    assert without.stages == given.stages
    assert without.layer_transfers == () and without.tokens_per_step is None
    assert given.layer_transfers
