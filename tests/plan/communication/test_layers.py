"""What layers exchange, against the numbers that the papers give for it."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_accum.plan.communication import Transfer, passed_bytes, total_sent_bytes
from ds_accum.plan.communication.layers import (
    context_parallel_transfers,
    expert_parallel_transfers,
    pipeline_parallel_transfers,
    sequence_parallel_transfers,
    tensor_parallel_transfers,
)

SIZES = st.integers(1, 512)


def tensor(ranks: int = 8, *, tokens: int = 4096, **options: object) -> tuple[Transfer, ...]:
    values: dict[str, object] = {
        "ranks": ranks,
        "num_layers": 1,
        "tokens": tokens,
        "hidden_size": 1024,
        "value_bytes": 2,
        "gradient_accumulation_steps": 1,
        **options,
    }
    return tensor_parallel_transfers(**values)  # type: ignore[arg-type]


@given(ranks=st.integers(2, 16), tokens=SIZES, layers=st.integers(1, 96), accumulation=st.integers(1, 32))
def test_a_layer_sends_8_b_s_h_of_t_minus_1_over_t_elements(
    ranks: int, tokens: int, layers: int, accumulation: int
) -> None:
    """Narayanan et al. 2021, section 3.2: 8 b s h (t-1)/t elements per layer and micro-batch."""
    tokens *= ranks
    found = tensor(ranks, tokens=tokens, num_layers=layers, gradient_accumulation_steps=accumulation)
    elements = Fraction(8 * tokens * 1024 * (ranks - 1), ranks)
    assert total_sent_bytes(found) == 2 * elements * layers * accumulation


def test_sequence_parallel_sends_the_same_but_for_the_inputs_gathered_again() -> None:
    """Korthikanti et al. 2022, section 4.2.2: 4 all-gathers and 4 reduce-scatters in place of 4 all-reduces, and the
    inputs of attention and MLP gathered once more in the backward."""
    plain, split = tensor(), tensor(megatron_sequence_parallel=True)
    reductions, gathers = split
    assert (reductions.times, gathers.times) == (4, 4 + 2)
    assert total_sent_bytes(split) - total_sent_bytes(plain) == 2 * gathers.sent_bytes // gathers.times


def test_full_recompute_repeats_the_two_all_reduces_of_the_forward() -> None:
    assert [found.times for found in tensor(forwards=2)] == [6]


def test_the_ends_of_the_model_exchange_more() -> None:
    assert [found.times for found in tensor(is_first_stage=True)] == [5]
    layers, cross_entropy = tensor(is_last_stage=True)
    assert layers.times == 5
    assert (cross_entropy.times, cross_entropy.bytes_each) == (3, 4096 * 4)


@given(ranks=st.integers(2, 64), tokens=SIZES, accumulation=st.integers(1, 8))
def test_ulysses_sends_4_n_h_over_p_a_forward(ranks: int, tokens: int, accumulation: int) -> None:
    """Jacobs et al. 2023, section 3.2: all-to-alls of 3 N h for Q, K, V and N h for the output, each link 1/P of it."""
    hidden, sequence = 64 * ranks, tokens * ranks
    found = sequence_parallel_transfers(
        ranks=ranks,
        num_layers=1,
        tokens=tokens,
        values_per_token=4 * hidden,
        value_bytes=1,
        gradient_accumulation_steps=accumulation,
    )
    assert passed_bytes(found) == accumulation * 2 * 4 * sequence * hidden // ranks


@given(ranks=st.integers(2, 64), tokens=SIZES)
def test_in_a_ring_every_key_meets_every_rank_and_every_gradient_comes_home(ranks: int, tokens: int) -> None:
    keys, gradients = context_parallel_transfers(
        ranks=ranks,
        num_layers=1,
        tokens=tokens,
        values_per_token=256,
        value_bytes=2,
        gradient_accumulation_steps=1,
    )
    block = tokens * 256
    assert keys.sent_bytes == 2 * (ranks - 1) * block * 2  # forward and backward
    assert gradients.sent_bytes == ranks * block * 4


def test_tokens_go_to_their_experts_and_back_in_both_directions() -> None:
    (found,) = expert_parallel_transfers(
        ranks=4,
        num_layers=3,
        tokens=100,
        experts_per_token=2,
        hidden_size=8,
        value_bytes=2,
        gradient_accumulation_steps=5,
    )
    assert (found.times, found.bytes_each) == (5 * 3 * 4, 100 * 2 * 8 * 2)


@given(stages=st.integers(2, 16), virtual=st.integers(1, 4), accumulation=st.integers(1, 32), tokens=SIZES, split=SIZES)
def test_all_stages_together_send_over_every_boundary_once_each_way(
    stages: int, virtual: int, accumulation: int, tokens: int, split: int
) -> None:
    """p v chunks have p v - 1 boundaries; Narayanan et al. 2021, section 2.2.2: v times the communication."""
    tokens *= split
    sent = sum(
        total_sent_bytes(
            pipeline_parallel_transfers(
                stages=stages,
                stage=stage,
                tokens=tokens,
                hidden_size=16,
                value_bytes=2,
                gradient_accumulation_steps=accumulation,
                virtual_stages=virtual,
                split=split,
            )
        )
        for stage in range(stages)
    )
    assert sent == accumulation * 2 * (stages * virtual - 1) * tokens * 16 * 2 // split


@pytest.mark.parametrize("degree", ["tensor", "sequence", "context", "expert", "pipeline"])
def test_a_degree_of_1_exchanges_nothing(degree: str) -> None:
    common = {"tokens": 8, "value_bytes": 2, "gradient_accumulation_steps": 4}
    found = {
        "tensor": lambda: tensor(1, is_first_stage=True, is_last_stage=True),
        "sequence": lambda: sequence_parallel_transfers(ranks=1, num_layers=2, values_per_token=8, **common),
        "context": lambda: context_parallel_transfers(ranks=1, num_layers=2, values_per_token=8, **common),
        "expert": lambda: expert_parallel_transfers(
            ranks=1, num_layers=2, experts_per_token=2, hidden_size=8, **common
        ),
        "pipeline": lambda: pipeline_parallel_transfers(stages=1, stage=0, hidden_size=8, **common),
    }[degree]()
    assert found == ()
