"""A target is met exactly, or the nearest that can be are named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_accum.errors import BatchError, UsageError
from ds_accum.plan.targets import nearest_batches, resolve_target


def test_tokens_become_samples_exactly() -> None:
    assert resolve_target(tokens_per_step=1536 * 2048, sequence_length=2048, data_parallel_sizes={8}) == 1536
    assert resolve_target(tokens_per_step=3_145_728, sequence_length=2048, data_parallel_sizes={1}) == 1536


def test_four_million_tokens_are_no_multiple_of_4096_and_the_nearest_are_named() -> None:
    with pytest.raises(BatchError, match=r"4000000 tokens a step are no multiple .* 4096 \(remainder 2304\)") as caught:
        resolve_target(tokens_per_step=4_000_000, sequence_length=4096, data_parallel_sizes={1, 2, 64})
    assert caught.value.remedy == (
        "the nearest that a layout meets: 3997696 (976 samples) or 4001792 (977 samples);"
        " with data parallel 64: 3932160 (960 samples) or 4194304 (1024 samples)"
    )


def test_a_step_below_one_sequence_names_one_sequence() -> None:
    with pytest.raises(BatchError) as caught:
        resolve_target(tokens_per_step=1000, sequence_length=4096, data_parallel_sizes={1})
    assert caught.value.remedy == "the nearest that a layout meets: 4096 (1 sample)"


def test_a_batch_that_no_data_parallel_size_divides_names_its_neighbours() -> None:
    with pytest.raises(BatchError, match="global batch 100 is not a multiple of data parallel 64") as caught:
        resolve_target(global_batch_size=100, sequence_length=1, data_parallel_sizes={64})
    assert caught.value.remedy == "use a global batch of 64 or 128, other GPUs, or other limits of the layout"


def test_a_batch_below_the_smallest_data_parallel_size_names_it() -> None:
    with pytest.raises(BatchError, match="any data parallel size of a legal layout, 8 to 64") as caught:
        resolve_target(global_batch_size=3, sequence_length=1, data_parallel_sizes={8, 64})
    assert caught.value.remedy is not None and caught.value.remedy.startswith("use a global batch of 8,")


@given(batch=st.integers(1, 5000), sizes=st.sets(st.integers(1, 600), min_size=1, max_size=5))
def test_the_nearest_batches_are_the_nearest(batch: int, sizes: set[int]) -> None:
    below, above = nearest_batches(batch, sizes)

    def can(value: int) -> bool:
        return any(value % size == 0 for size in sizes)

    assert below == next((value for value in range(batch - 1, 0, -1) if can(value)), None)
    assert above == next(value for value in range(batch + 1, batch + 601) if can(value))


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({}, "just one of them"),
        ({"global_batch_size": 8, "tokens_per_step": 8}, "just one of them"),
        ({"global_batch_size": 0}, "global batch size must be at least 1, not 0"),
        ({"tokens_per_step": -4}, "tokens per step must be at least 1, not -4"),
        ({"global_batch_size": 8.0}, "global batch size must be an integer"),
        ({"global_batch_size": 10**30}, "is more than 268435455"),
    ],
)
def test_a_target_that_is_none_is_refused(given_: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        resolve_target(sequence_length=1, data_parallel_sizes={1}, **given_)
