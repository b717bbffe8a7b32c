"""How many optimizer steps a training has, and how long its warmup is."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_accum.batch import BatchLedger
from ds_accum.errors import UsageError
from ds_accum.plan.length import Warmup, epoch_of, training_length

SIZE = st.integers(1, 64)
LEDGERS = st.builds(BatchLedger, micro_batch_size=SIZE, gradient_accumulation_steps=SIZE, data_parallel_size=SIZE)
GPT3 = BatchLedger(micro_batch_size=1, gradient_accumulation_steps=24, data_parallel_size=64)
SMALL = BatchLedger(micro_batch_size=2, gradient_accumulation_steps=4, data_parallel_size=3)


def test_gpt_3_takes_95_368_steps_of_3_145_728_tokens_for_300_billion() -> None:
    length = training_length(GPT3, sequence_length=2048, token_budget=300 * 10**9, warmup=Warmup(tokens=375 * 10**6))
    assert (GPT3.global_batch_size, GPT3.tokens_per_step(sequence_length=2048)) == (1536, 3_145_728)
    assert (length.total_steps, length.warmup_steps) == (95_368, 120)
    assert length.total_tokens == 95_368 * 3_145_728 == 300_001_787_904
    assert length.formula == "ceil(300000000000 tokens / 3145728 a step)"


@given(ledger=LEDGERS, sequence_length=st.integers(1, 8192), budget=st.integers(1, 10**12))
def test_a_token_budget_is_reached_by_the_last_step_and_not_before(
    ledger: BatchLedger, sequence_length: int, budget: int
) -> None:
    length = training_length(ledger, sequence_length=sequence_length, token_budget=budget)
    assert length.total_tokens is not None
    assert length.total_tokens - ledger.tokens_per_step(sequence_length=sequence_length) < budget <= length.total_tokens
    assert length.total_samples == length.total_steps * ledger.global_batch_size
    assert length.micro_batches == length.total_steps * ledger.gradient_accumulation_steps


@given(ledger=LEDGERS, num_samples=st.integers(1, 10**6), epochs=st.integers(1, 5), drop_last=st.booleans())
def test_epochs_take_the_steps_of_a_loop_that_never_drops_its_window(
    ledger: BatchLedger, num_samples: int, epochs: int, drop_last: bool
) -> None:
    epoch = epoch_of(ledger, num_samples, drop_last=drop_last)
    in_window, steps = 0, 0
    for _ in range(epochs):
        done, in_window = divmod(in_window + epoch.micro_batches, ledger.gradient_accumulation_steps)
        steps += done
    if steps == 0:
        with pytest.raises(UsageError, match="no optimizer step comes about"):
            training_length(ledger, epoch=epoch, epochs=epochs)
    else:
        assert training_length(ledger, epoch=epoch, epochs=epochs).total_steps == steps


@given(ledger=LEDGERS, num_samples=st.integers(1, 10**6))
def test_an_epoch_is_its_steps_and_what_it_leaves_over(ledger: BatchLedger, num_samples: int) -> None:
    epoch = epoch_of(ledger, num_samples)
    accumulation = ledger.gradient_accumulation_steps
    assert epoch.steps * accumulation + epoch.left_over_micro_batches == epoch.micro_batches
    assert 0 <= epoch.left_over_micro_batches < accumulation
    assert (num_samples + epoch.repeated_samples) % ledger.data_parallel_size == 0
    assert 0 <= epoch.repeated_samples < ledger.data_parallel_size


def test_the_leftovers_of_an_epoch_complete_a_window_of_the_next() -> None:
    epoch = epoch_of(SMALL, 34)  # 12 samples a rank, 6 micro-batches: one window and 2 left over
    assert (epoch.micro_batches, epoch.steps, epoch.left_over_micro_batches, epoch.repeated_samples) == (6, 1, 2, 2)
    assert training_length(SMALL, epoch=epoch, epochs=2).total_steps == 3


@pytest.mark.parametrize(
    ("warmup", "steps", "formula"),
    [
        (Warmup(steps=7), 7, "as given"),
        (Warmup(samples=25), 2, "ceil(25 samples / 24 a step)"),
        (Warmup(samples=24), 1, "ceil(24 samples / 24 a step)"),
        (Warmup(tokens=481), 3, "ceil(481 tokens / 240 a step)"),
        (Warmup(ratio=Fraction(3, 100)), 30, "ceil(0.03 x 1000 steps)"),
        (Warmup(ratio=Fraction(1, 10**6)), 1, "ceil(1e-06 x 1000 steps)"),
    ],
)
def test_a_warmup_in_any_unit_comes_to_whole_optimizer_steps(warmup: Warmup, steps: int, formula: str) -> None:
    length = training_length(SMALL, sequence_length=10, total_steps=1000, warmup=warmup)
    assert (length.warmup_steps, length.warmup_formula) == (steps, formula)


@given(percent=st.integers(1, 100), steps=st.integers(1, 10**9))
def test_a_ratio_is_rounded_up_exactly_and_not_as_a_float(percent: int, steps: int) -> None:
    length = training_length(SMALL, total_steps=steps, warmup=Warmup(ratio=Fraction(percent, 100)))
    assert length.warmup_steps == -(-percent * steps // 100) == ceil(Fraction(percent * steps, 100))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "0 of them are given"),
        ({"total_steps": 3, "token_budget": 5}, "2 of them are given"),
        ({"token_budget": 5}, "a token budget needs a sequence length"),
        ({"total_steps": 0}, "optimizer steps must be at least 1, not 0"),
        ({"total_steps": 3, "warmup": Warmup(tokens=3)}, "a warmup in tokens needs a sequence length"),
        ({"total_steps": 3, "warmup": Warmup(steps=4)}, "warmup of 4 optimizer steps is longer than the training of 3"),
    ],
)
def test_what_says_no_length_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        training_length(SMALL, **options)  # type: ignore[arg-type]
    assert caught.value.remedy is not None


@pytest.mark.parametrize(
    "given",
    [{}, {"steps": 1, "tokens": 1}, {"steps": 0}, {"samples": -1}, {"ratio": Fraction(0)}, {"ratio": Fraction(2)}],
)
def test_a_warmup_is_one_positive_quantity(given: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Warmup(**given)  # type: ignore[arg-type]
