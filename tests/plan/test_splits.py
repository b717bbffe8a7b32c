"""Splits of one global batch: which samples go where, and what is equal."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_accum.batch import BatchLedger, ParallelLayout
from ds_accum.errors import BatchError, LayoutError, UsageError
from ds_accum.plan.account import ModelSize
from ds_accum.plan.shapes import read_shape
from ds_accum.plan.splits import MOST_SPLITS, all_splits, compare_splits, parse_splits, place_of, samples_of

SIZE = st.integers(1, 8)
LEDGERS = st.builds(BatchLedger, micro_batch_size=SIZE, gradient_accumulation_steps=SIZE, data_parallel_size=SIZE)
WORLD = ParallelLayout(world_size=1)


def ledger(micro: int, data: int, accumulation: int) -> BatchLedger:
    return BatchLedger(micro_batch_size=micro, data_parallel_size=data, gradient_accumulation_steps=accumulation)


def test_splits_are_micro_batch_x_data_parallel_x_accumulation() -> None:
    assert parse_splits("4x8x4, 8X16x1") == (ledger(4, 8, 4), ledger(8, 16, 1))


@pytest.mark.parametrize(
    "text", ["", "4x8", "4x8x4x1", "axbxc", "4x8x-4", "4x8x4,", "4.0x8x4", "٤x8x4", "4x8x" + "9" * 5000, "nanx1x1"]
)
def test_what_is_no_split_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_splits(text)
    assert caught.value.remedy is not None
    assert len(str(caught.value)) < 100


def test_a_split_of_another_batch_is_refused_with_what_would_make_it_one() -> None:
    with pytest.raises(UsageError, match="8x16x2 is a global batch of 256 samples, and 4x8x4 of 128") as caught:
        parse_splits("4x8x4,8x16x2")
    assert caught.value.remedy == "set micro batch to 4 or data parallel to 8 or accumulation to 1"


def test_zero_and_a_split_given_twice_are_refused() -> None:
    with pytest.raises(BatchError, match="micro batch must be at least 1, not 0"):
        parse_splits("0x8x4")
    with pytest.raises(UsageError, match="4x8x4 is given twice"):
        parse_splits("4x8x4,4x8x4")


def test_more_splits_than_a_table_shows_are_refused() -> None:
    with pytest.raises(UsageError, match=f"more than the {MOST_SPLITS}"):
        parse_splits(",".join(f"{micro}x1x1" for micro in range(1, MOST_SPLITS + 2)))


@given(batch=st.integers(1, 64), data=st.integers(1, 8))
@settings(deadline=None)
def test_all_splits_are_those_that_multiply_to_the_batch(batch: int, data: int) -> None:
    by_trying = [
        ledger(micro, ranks, accumulation)
        for micro in range(1, batch + 1)
        for ranks in range(1, batch + 1)
        for accumulation in [batch // (micro * ranks)]
        if micro * ranks * accumulation == batch
    ]
    if len(by_trying) <= MOST_SPLITS:
        assert list(all_splits(batch)) == by_trying
    else:
        with pytest.raises(UsageError, match=f"{len(by_trying)} splits"):
            all_splits(batch)
    if batch % data == 0:
        of_size = [split for split in by_trying if split.data_parallel_size == data]
        assert list(all_splits(batch, data_parallel_size=data)) == of_size


def test_a_data_parallel_size_that_does_not_divide_has_no_split() -> None:
    with pytest.raises(BatchError, match="not a multiple of data parallel 3"):
        all_splits(128, data_parallel_size=3)
    with pytest.raises(UsageError, match="too many divisors"):
        all_splits(2**40 + 2)


@given(split=LEDGERS, step=st.integers(0, 3))
@settings(deadline=None)
def test_every_step_takes_the_next_samples_of_the_epoch_whatever_the_split(split: BatchLedger, step: int) -> None:
    taken = [
        sample
        for rank in range(split.data_parallel_size)
        for micro_batch in range(split.gradient_accumulation_steps)
        for sample in samples_of(split, rank=rank, micro_batch=micro_batch, step=step)
    ]
    batch = split.global_batch_size
    assert sorted(taken) == list(range(step * batch, (step + 1) * batch))


@given(split=LEDGERS, step=st.integers(0, 3))
@settings(deadline=None)
def test_a_sample_is_where_its_micro_batch_is(split: BatchLedger, step: int) -> None:
    for rank in range(split.data_parallel_size):
        for micro_batch in range(split.gradient_accumulation_steps):
            for position, sample in enumerate(samples_of(split, rank=rank, micro_batch=micro_batch, step=step)):
                place = place_of(split, sample)
                found = (place.step, place.rank, place.micro_batch, place.position)
                assert found == (step, rank, micro_batch, position)


@pytest.mark.engine
@given(split=LEDGERS, shuffle=st.booleans())
@settings(max_examples=25, deadline=None)
def test_torch_deals_samples_so(split: BatchLedger, shuffle: bool) -> None:
    from torch.utils.data import BatchSampler, DistributedSampler

    batch = split.global_batch_size
    dataset = range(2 * batch)
    whole = list(DistributedSampler(dataset, num_replicas=1, rank=0, shuffle=shuffle))  # type: ignore[arg-type]
    for rank in range(split.data_parallel_size):
        sampler = DistributedSampler(
            dataset,  # type: ignore[arg-type]
            num_replicas=split.data_parallel_size,
            rank=rank,
            shuffle=shuffle,
        )
        micro_batches = list(BatchSampler(sampler, split.micro_batch_size, drop_last=False))
        for index, samples in enumerate(micro_batches):
            step, micro_batch = divmod(index, split.gradient_accumulation_steps)
            places = samples_of(split, rank=rank, micro_batch=micro_batch, step=step)
            assert samples == [whole[place] for place in places]


@given(batch=st.sampled_from((12, 16, 30)), num_samples=st.integers(1, 10_000))
@settings(deadline=None)
def test_splits_are_equal_in_samples_and_tokens_and_no_split_reduces_less_than_accumulation_1(
    batch: int, num_samples: int
) -> None:
    accounts = compare_splits(all_splits(batch), WORLD, sequence_length=7, num_samples=num_samples)
    assert {split.ledger.global_batch_size for split in accounts} == {batch}
    assert {split.account.tokens_per_step for split in accounts} == {7 * batch}
    for split in accounts:
        assert split.account.layout.world_size == split.ledger.data_parallel_size
        assert split.normalized_together_synchronized * split.ledger.gradient_accumulation_steps == batch
        at_boundary, every_micro_batch = split.account.stages[1], split.account.stages[2]
        assert at_boundary.synchronizations <= every_micro_batch.synchronizations


def test_the_two_splits_of_128_side_by_side() -> None:
    small, large = compare_splits(parse_splits("4x8x4,8x16x1"), WORLD)
    assert small.first_micro_batch == (0, 8, 16, 24)
    assert large.first_micro_batch == (0, 16, 32, 48, 64, 80, 96, 112)
    assert (small.normalized_together, small.normalized_together_synchronized) == (4, 32)
    assert (large.normalized_together, large.normalized_together_synchronized) == (8, 128)
    assert small.memory is large.memory is None


def test_memory_of_a_known_model_grows_with_the_micro_batch_under_every_stage() -> None:
    model = ModelSize.of(read_shape("gpt-125m"))
    splits = compare_splits(all_splits(8, data_parallel_size=2), WORLD, sequence_length=1024, model=model)
    for before, after in pairwise(splits):
        assert before.memory is not None
        assert after.memory is not None
        if before.ledger.gradient_accumulation_steps > 1 and after.ledger.gradient_accumulation_steps > 1:
            for stage in range(4):
                small, large = before.memory[stage], after.memory[stage]
                assert small is not None
                assert large is not None
                assert small.peak_bytes < large.peak_bytes


def test_a_pipeline_has_no_memory_under_the_stages_that_it_refuses() -> None:
    layout = ParallelLayout(world_size=4, pipeline_parallel_size=2)
    model = ModelSize.of(read_shape("gpt-125m"))
    (split,) = compare_splits(parse_splits("1x2x4"), layout, sequence_length=1024, model=model)
    assert split.memory is not None
    assert [estimate is None for estimate in split.memory] == [False, False, True, True]


def test_a_split_whose_world_has_no_room_for_the_experts_is_refused() -> None:
    with pytest.raises(LayoutError, match="expert 4"):
        compare_splits(parse_splits("1x4x1,2x2x1"), ParallelLayout(world_size=4, expert_parallel_size=4))
