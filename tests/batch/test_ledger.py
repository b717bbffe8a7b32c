"""BatchLedger: exact or refused, on every small grid, for huge integers, and beside DeepSpeed itself."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_accum.batch import BatchLedger
from ds_accum.errors import BatchError, UsageError

UP_TO_EIGHT = range(1, 9)
POSITIVE = st.integers(min_value=1)
SMALL = st.integers(min_value=1, max_value=8)

Triple = tuple[int, int, int]


def refusal(**sizes: Any) -> BatchError:
    with pytest.raises(BatchError) as caught:
        BatchLedger.solve(**sizes)
    return caught.value


def solved(ledger: BatchLedger) -> Triple:
    return ledger.global_batch_size, ledger.micro_batch_size, ledger.gradient_accumulation_steps


def by_brute_force(
    data_parallel: int, global_batch: int | None, micro_batch: int | None, accumulation: int | None
) -> Triple | None:
    """The one consistent triple that keeps what is given, accumulation 1 where nothing decides it; None without one."""
    if global_batch is None and micro_batch is None:
        return None
    if accumulation is None and (global_batch is None or micro_batch is None):
        accumulation = 1
    consistent = [
        (micro * data_parallel * steps, micro, steps)
        for micro in ([micro_batch] if micro_batch else range(1, (global_batch or 0) + 1))
        for steps in ([accumulation] if accumulation else range(1, (global_batch or 0) + 1))
        if global_batch in (None, micro * data_parallel * steps)
    ]
    assert len(consistent) <= 1
    return consistent[0] if consistent else None


def test_the_global_batch_is_the_product_of_its_factors() -> None:
    for micro, data_parallel, accumulation in product(UP_TO_EIGHT, repeat=3):
        ledger = BatchLedger(
            micro_batch_size=micro, data_parallel_size=data_parallel, gradient_accumulation_steps=accumulation
        )
        counted = sum(1 for _ in range(micro) for _ in range(data_parallel) for _ in range(accumulation))
        assert ledger.global_batch_size == counted


def test_a_consistent_batch_is_recovered_from_every_pair_that_determines_it() -> None:
    for micro, data_parallel, accumulation in product(UP_TO_EIGHT, repeat=3):
        whole = micro * data_parallel * accumulation
        wanted = (whole, micro, accumulation)
        for given_sizes in (
            {"global_batch_size": whole, "micro_batch_size": micro, "gradient_accumulation_steps": accumulation},
            {"global_batch_size": whole, "micro_batch_size": micro},
            {"global_batch_size": whole, "gradient_accumulation_steps": accumulation},
            {"micro_batch_size": micro, "gradient_accumulation_steps": accumulation},
        ):
            assert solved(BatchLedger.solve(data_parallel_size=data_parallel, **given_sizes)) == wanted


def test_every_small_combination_is_solved_or_refused_as_brute_force_says() -> None:
    maybe = (None, 1, 2, 3, 4, 5, 8)
    answered = refused = 0
    for data_parallel in UP_TO_EIGHT:
        for whole, micro, accumulation in product((None, *range(1, 37), 64), maybe, maybe):
            sizes = {
                "data_parallel_size": data_parallel,
                "global_batch_size": whole,
                "micro_batch_size": micro,
                "gradient_accumulation_steps": accumulation,
            }
            wanted = by_brute_force(data_parallel, whole, micro, accumulation)
            if wanted is None:
                refused += 1
                refusal(**sizes)
            else:
                answered += 1
                assert solved(BatchLedger.solve(**sizes)) == wanted, sizes
    assert answered > 1000
    assert refused > 1000


@given(data_parallel=SMALL | POSITIVE, whole=POSITIVE, micro=st.none() | SMALL, accumulation=st.none() | SMALL)
def test_nothing_is_ever_floored(data_parallel: int, whole: int, micro: int | None, accumulation: int | None) -> None:
    sizes = {
        "data_parallel_size": data_parallel,
        "global_batch_size": whole,
        "micro_batch_size": micro,
        "gradient_accumulation_steps": accumulation,
    }
    product_given = data_parallel * (micro or 1) * (accumulation or 1)
    if whole % product_given or (micro and accumulation and whole != product_given):
        imbalance = refusal(**sizes).imbalance
        assert imbalance is not None
        assert (imbalance.product, imbalance.remainder) == (product_given, whole % product_given)
        return
    ledger = BatchLedger.solve(**sizes)  # type: ignore[arg-type]
    assert ledger.micro_batch_size * data_parallel * ledger.gradient_accumulation_steps == whole
    for written, kept in zip((whole, micro, accumulation), solved(ledger), strict=True):
        assert written in (None, kept)


@given(micro=st.integers(1, 10**60), data_parallel=st.integers(1, 10**60), accumulation=st.integers(1, 10**60))
def test_huge_integers_are_solved_to_the_last_digit(micro: int, data_parallel: int, accumulation: int) -> None:
    whole = micro * data_parallel * accumulation
    wanted = (whole, micro, accumulation)
    solve = BatchLedger.solve
    assert solved(solve(data_parallel_size=data_parallel, global_batch_size=whole, micro_batch_size=micro)) == wanted
    assert (
        solved(
            solve(data_parallel_size=data_parallel, global_batch_size=whole, gradient_accumulation_steps=accumulation)
        )
        == wanted
    )
    if data_parallel * micro > 1:
        refusal(data_parallel_size=data_parallel, global_batch_size=whole + 1, micro_batch_size=micro)


@pytest.mark.parametrize("exponent", [30, 100, 5000])
def test_a_huge_indivisible_batch_is_refused_at_once_and_can_be_printed(exponent: int) -> None:
    error = refusal(data_parallel_size=7, global_batch_size=10**exponent, micro_batch_size=3)
    assert error.imbalance is not None
    assert error.imbalance.remainder == 10**exponent % 21
    assert "is not a multiple of micro batch 3 x data parallel 7 = 21" in str(error)


def test_an_indivisible_batch_names_the_remainder_and_both_neighbours() -> None:
    error = refusal(data_parallel_size=4, global_batch_size=100, micro_batch_size=8)
    assert str(error) == (
        "global batch 100 is not a multiple of micro batch 8 x data parallel 4 = 32 (remainder 4); "
        "nearest: 96, 128; or micro batch 5, 25"
    )
    assert error.remedy == "change global batch to 96 or 128, or micro batch to 5 or 25"


def test_a_batch_too_small_for_one_sample_each_is_not_reported_as_zero_accumulation() -> None:
    error = refusal(data_parallel_size=8, global_batch_size=16, micro_batch_size=4)
    assert str(error) == (
        "global batch 16 is not a multiple of micro batch 4 x data parallel 8 = 32 (remainder 16); "
        "nearest: 32; or micro batch 2; or data parallel 4"
    )


def test_an_indivisible_batch_with_accumulation_names_that_equation() -> None:
    error = refusal(data_parallel_size=4, global_batch_size=60, gradient_accumulation_steps=8)
    assert str(error) == (
        "global batch 60 is not a multiple of data parallel 4 x accumulation 8 = 32 (remainder 28); "
        "nearest: 32, 64; or accumulation 5, 15"
    )


def test_a_lone_global_batch_has_to_be_a_multiple_of_data_parallel() -> None:
    error = refusal(data_parallel_size=4, global_batch_size=10)
    assert str(error) == (
        "global batch 10 is not a multiple of data parallel 4 (remainder 2); nearest: 8, 12; or data parallel 2, 5"
    )


def test_a_triple_that_disagrees_names_what_each_number_would_have_to_be() -> None:
    error = refusal(data_parallel_size=4, global_batch_size=64, micro_batch_size=2, gradient_accumulation_steps=4)
    assert str(error) == (
        "global batch 64 is not micro batch 2 x data parallel 4 x accumulation 4 = 32; "
        "it adds up with global batch 32, micro batch 4, data parallel 8 or accumulation 8"
    )
    assert error.remedy == ("change global batch to 32, micro batch to 4, data parallel to 8, or accumulation to 8")


def test_a_triple_that_only_the_global_batch_can_mend_says_so() -> None:
    error = refusal(data_parallel_size=4, global_batch_size=61, micro_batch_size=2, gradient_accumulation_steps=4)
    assert str(error) == (
        "global batch 61 is not micro batch 2 x data parallel 4 x accumulation 4 = 32; it adds up with global batch 32"
    )


def test_accumulation_alone_determines_nothing() -> None:
    error = refusal(data_parallel_size=4, gradient_accumulation_steps=4)
    assert str(error) == "neither global batch nor micro batch is given, and accumulation 4 alone determines neither"
    assert error.remedy == "give the global batch, the micro batch, or both"
    assert error.imbalance is None


def test_no_number_at_all_determines_nothing() -> None:
    assert str(refusal(data_parallel_size=4)) == "neither global batch nor micro batch is given"


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("global_batch_size", "global batch"),
        ("micro_batch_size", "micro batch"),
        ("data_parallel_size", "data parallel"),
        ("gradient_accumulation_steps", "accumulation"),
    ],
)
@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (0, "must be at least 1, not 0"),
        (-8, "must be at least 1, not -8"),
        (True, "must be an integer, not True"),
        (0.5, "must be an integer, not 0.5"),
        (2.0, "must be an integer, not 2.0"),
        ("auto", "must be an integer, not 'auto'"),
        ([8], "must be an integer, not a list"),
    ],
)
def test_what_is_no_positive_integer_is_refused_by_name(field: str, name: str, value: object, complaint: str) -> None:
    sizes = {"data_parallel_size": 1, "global_batch_size": 8, "micro_batch_size": 8, "gradient_accumulation_steps": 1}
    assert str(refusal(**sizes | {field: value})) == f"{name} {complaint}"
    if field != "global_batch_size":
        del sizes["global_batch_size"]
        with pytest.raises(BatchError) as caught:
            BatchLedger(**sizes | {field: value})  # type: ignore[arg-type]
        assert str(caught.value) == f"{name} {complaint}"


def test_data_parallel_has_no_default() -> None:
    assert str(refusal(data_parallel_size=None, micro_batch_size=2)) == "data parallel must be an integer, not None"


def test_the_description_is_the_equation() -> None:
    ledger = BatchLedger(micro_batch_size=4, data_parallel_size=8, gradient_accumulation_steps=2)
    assert ledger.describe() == "global batch 64 = micro batch 4 x data parallel 8 x accumulation 2"


def test_a_ledger_is_a_value_that_can_not_change() -> None:
    ledger = BatchLedger(micro_batch_size=4, data_parallel_size=8, gradient_accumulation_steps=2)
    with pytest.raises(FrozenInstanceError):
        ledger.micro_batch_size = 8  # type: ignore[misc]
    assert replace(ledger, micro_batch_size=8).global_batch_size == 2 * ledger.global_batch_size


def test_tokens_per_step_count_every_position_of_every_sample() -> None:
    ledger = BatchLedger(micro_batch_size=4, data_parallel_size=8, gradient_accumulation_steps=2)
    assert ledger.tokens_per_step(sequence_length=2048) == 131_072


def test_gradients_of_a_single_rank_are_never_synchronized() -> None:
    for accumulation, at_boundary in product(UP_TO_EIGHT, (True, False)):
        ledger = BatchLedger(micro_batch_size=1, data_parallel_size=1, gradient_accumulation_steps=accumulation)
        assert ledger.synchronizations_per_step(reduce_at_boundary=at_boundary) == 0


def test_gradients_are_synchronized_once_at_the_boundary_or_once_a_micro_batch() -> None:
    for accumulation, data_parallel in product(UP_TO_EIGHT, range(2, 9)):
        ledger = BatchLedger(
            micro_batch_size=1, data_parallel_size=data_parallel, gradient_accumulation_steps=accumulation
        )
        assert ledger.synchronizations_per_step(reduce_at_boundary=True) == 1
        assert ledger.synchronizations_per_step(reduce_at_boundary=False) == accumulation


def dealt_to_rank_zero(num_samples: int, data_parallel: int) -> list[int]:
    """What torch's DistributedSampler gives: every data_parallel-th sample, the list first filled up by repeating."""
    indices = list(range(num_samples))
    while indices and len(indices) % data_parallel:
        indices.append(indices[len(indices) - num_samples])
    return indices[::data_parallel]


def micro_batches_of(samples: list[int], micro_batch: int, drop_last: bool) -> list[list[int]]:
    batches = [samples[start : start + micro_batch] for start in range(0, len(samples), micro_batch)]
    return [batch for batch in batches if len(batch) == micro_batch or not drop_last]


def test_an_epoch_has_the_micro_batches_and_steps_that_walking_through_it_gives() -> None:
    for micro, data_parallel, accumulation in product((1, 2, 3, 8), (1, 2, 3, 5), (1, 2, 4, 7)):
        ledger = BatchLedger(
            micro_batch_size=micro, data_parallel_size=data_parallel, gradient_accumulation_steps=accumulation
        )
        for num_samples, drop_last in product(range(60), (True, False)):
            batches = micro_batches_of(dealt_to_rank_zero(num_samples, data_parallel), micro, drop_last)
            assert ledger.micro_batches_per_epoch(num_samples, drop_last=drop_last) == len(batches)
            steps = pending = 0
            for _ in batches:
                pending += 1
                if pending == accumulation:
                    steps, pending = steps + 1, 0
            for incomplete_window, expected in ((False, steps), (True, steps + (pending > 0))):
                assert expected == ledger.steps_per_epoch(
                    num_samples, incomplete_window=incomplete_window, drop_last=drop_last
                )


@pytest.mark.engine
def test_an_epoch_has_as_many_micro_batches_as_torch_deals() -> None:
    data = pytest.importorskip("torch.utils.data")
    for micro, data_parallel, num_samples, drop_last in product((1, 3, 8), (1, 2, 5), range(1, 40), (True, False)):
        ledger = BatchLedger(micro_batch_size=micro, data_parallel_size=data_parallel, gradient_accumulation_steps=1)
        lengths = set()
        for rank in range(data_parallel):
            sampler = data.DistributedSampler(range(num_samples), num_replicas=data_parallel, rank=rank)
            loader = data.DataLoader(range(num_samples), batch_size=micro, sampler=sampler, drop_last=drop_last)
            lengths.add(len(loader))
        assert lengths == {ledger.micro_batches_per_epoch(num_samples, drop_last=drop_last)}


def test_windows_carried_over_fill_up_in_later_epochs() -> None:
    ledger = BatchLedger(micro_batch_size=2, data_parallel_size=2, gradient_accumulation_steps=4)
    assert ledger.micro_batches_per_epoch(24) == 6
    assert ledger.steps_per_epoch(24, incomplete_window=False) == 1
    assert ledger.steps_per_epoch(24, incomplete_window=True) == 2
    # two epochs in a row without a flush, as stock DeepSpeed runs them: the second completes the window of the first
    assert 2 * ledger.micro_batches_per_epoch(24) // ledger.gradient_accumulation_steps == 3


@pytest.mark.parametrize("value", [-1, 1.0, True, "8"])
def test_an_epoch_without_a_whole_number_of_samples_is_a_wrong_call(value: Any) -> None:
    ledger = BatchLedger(micro_batch_size=1, data_parallel_size=1, gradient_accumulation_steps=1)
    with pytest.raises(UsageError, match=r"^number of samples must be "):
        ledger.steps_per_epoch(value, incomplete_window=True)


@pytest.mark.parametrize("value", [0, 1.0, True, "8"])
def test_a_sequence_without_a_length_is_a_wrong_call(value: Any) -> None:
    ledger = BatchLedger(micro_batch_size=1, data_parallel_size=1, gradient_accumulation_steps=1)
    with pytest.raises(UsageError, match=r"^sequence length must be "):
        ledger.tokens_per_step(sequence_length=value)


@pytest.fixture
def deepspeed_solves(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, dict[str, int]], Triple | None]:
    """What the installed DeepSpeed makes of a config at a world size; None where it refuses."""
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what DeepSpeed's own imports warn about is not under test
        config = pytest.importorskip("deepspeed.runtime.config")
    # DeepSpeed logs each config in full, a thousand times here.
    logging.getLogger("DeepSpeed").setLevel(logging.CRITICAL)

    def solve(world_size: int, batch: dict[str, int]) -> Triple | None:
        world = SimpleNamespace(get_rank=lambda: 0, get_world_size=lambda: world_size)
        monkeypatch.setattr(config, "dist", world)
        try:
            read = config.DeepSpeedConfig(batch)
        except AssertionError:
            return None
        return read.train_batch_size, read.train_micro_batch_size_per_gpu, read.gradient_accumulation_steps

    return solve


@pytest.mark.engine
def test_deepspeed_derives_the_same_batch_and_refuses_the_same(
    deepspeed_solves: Callable[[int, dict[str, int]], Triple | None],
) -> None:
    keys = {
        "global_batch_size": "train_batch_size",
        "micro_batch_size": "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps": "gradient_accumulation_steps",
    }
    answers = set()
    for world, values in product((1, 2, 3, 8), product((None, 1, 12, 24, 25), (None, 1, 3, 4), (None, 1, 2, 3))):
        sizes = {field: value for field, value in zip(keys, values, strict=True) if value is not None}
        wanted = deepspeed_solves(world, {keys[field]: value for field, value in sizes.items()})
        answers.add(wanted is None)
        if wanted is None:
            refusal(data_parallel_size=world, **sizes)
        else:
            assert solved(BatchLedger.solve(data_parallel_size=world, **sizes)) == wanted, (world, sizes)
    assert answers == {True, False}
