"""Imbalance: every legal value it names would make the batch add up, and none nearer would."""

from __future__ import annotations

from itertools import product
from math import prod

from hypothesis import given
from hypothesis import strategies as st

from ds_accum.batch import BatchLedger, Imbalance, Neighbours, find_imbalance
from ds_accum.errors import BatchError

POSITIVE = st.integers(min_value=1)
MAYBE = st.none() | POSITIVE


def adds_up(sizes: dict[str, int | None]) -> bool:
    """The equation, spelled out: equal where everything is given, else a multiple, so that the rest can be derived."""
    factors = [size for field, size in sizes.items() if field != "global_batch_size" and size is not None]
    whole = sizes["global_batch_size"]
    assert whole is not None
    return whole == prod(factors) if len(factors) == 3 else whole % prod(factors) == 0


def is_solved(sizes: dict[str, int | None]) -> bool:
    try:
        BatchLedger.solve(**sizes)  # type: ignore[arg-type]
    except BatchError:
        return False
    return True


def test_an_imbalance_is_found_exactly_where_the_ledger_refuses() -> None:
    for whole, data_parallel, micro, accumulation in product(range(1, 30), (1, 2, 3), (None, 1, 3), (None, 1, 2)):
        sizes = {
            "global_batch_size": whole,
            "data_parallel_size": data_parallel,
            "micro_batch_size": micro,
            "gradient_accumulation_steps": accumulation,
        }
        found = find_imbalance(**sizes)  # type: ignore[arg-type]
        assert (found is None) == is_solved(sizes) == adds_up(sizes)


def test_every_legal_value_adds_up_and_nothing_between_does() -> None:
    checked = 0
    for whole, data_parallel, micro, accumulation in product((5, 7, 12, 30, 36), (1, 4, 5), (None, 2, 3), (None, 2, 6)):
        sizes = {
            "global_batch_size": whole,
            "data_parallel_size": data_parallel,
            "micro_batch_size": micro,
            "gradient_accumulation_steps": accumulation,
        }
        imbalance = find_imbalance(**sizes)  # type: ignore[arg-type]
        if imbalance is None:
            continue
        for field, written in sizes.items():
            if written is None:
                assert field not in imbalance.legal
                continue
            values = [value for value in range(1, 400) if adds_up(sizes | {field: value})]
            wanted = Neighbours(
                below=max((value for value in values if value < written), default=None),
                above=min((value for value in values if value > written), default=None),
            )
            assert imbalance.legal.get(field, Neighbours(below=None, above=None)) == wanted, (sizes, field)  # type: ignore[call-overload]
            checked += 1
    assert checked > 100


@given(POSITIVE, POSITIVE, MAYBE, MAYBE)
def test_legal_values_of_huge_batches_add_up(
    whole: int, data_parallel: int, micro: int | None, accumulation: int | None
) -> None:
    sizes = {
        "global_batch_size": whole,
        "data_parallel_size": data_parallel,
        "micro_batch_size": micro,
        "gradient_accumulation_steps": accumulation,
    }
    imbalance = find_imbalance(**sizes)  # type: ignore[arg-type]
    if imbalance is None:
        return
    assert "global_batch_size" in imbalance.legal
    for field, neighbours in imbalance.legal.items():
        for value in neighbours.values:
            assert adds_up(sizes | {field: value})


def test_the_facts_are_there_for_another_sentence() -> None:
    imbalance = find_imbalance(global_batch_size=100, data_parallel_size=4, micro_batch_size=8)
    assert imbalance == Imbalance(global_batch_size=100, data_parallel_size=4, micro_batch_size=8)
    assert imbalance.factors == {"micro_batch_size": 8, "data_parallel_size": 4}
    assert (imbalance.product, imbalance.remainder) == (32, 4)
    assert not imbalance.is_overdetermined
    assert imbalance.legal == {
        "global_batch_size": Neighbours(below=96, above=128),
        "micro_batch_size": Neighbours(below=5, above=25),
    }


def test_the_factors_keep_the_order_of_the_equation() -> None:
    imbalance = Imbalance(gradient_accumulation_steps=4, data_parallel_size=4, micro_batch_size=2, global_batch_size=64)
    assert list(imbalance.factors) == ["micro_batch_size", "data_parallel_size", "gradient_accumulation_steps"]
    assert imbalance.is_overdetermined


def test_a_disagreeing_triple_has_exactly_one_legal_value_each() -> None:
    imbalance = Imbalance(global_batch_size=64, data_parallel_size=4, micro_batch_size=2, gradient_accumulation_steps=4)
    assert imbalance.legal == {
        "global_batch_size": Neighbours(below=32, above=None),
        "micro_batch_size": Neighbours(below=None, above=4),
        "data_parallel_size": Neighbours(below=None, above=8),
        "gradient_accumulation_steps": Neighbours(below=None, above=8),
    }


def test_the_three_sentences_fit_together() -> None:
    imbalance = Imbalance(global_batch_size=10, data_parallel_size=4)
    assert imbalance.describe() == "global batch 10 is not a multiple of data parallel 4 (remainder 2)"
    assert imbalance.describe_legal() == "nearest: 8, 12; or data parallel 2, 5"
    assert imbalance.describe_remedy() == "change global batch to 8 or 12, or data parallel to 2 or 5"
