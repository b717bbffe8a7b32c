"""LegalWorlds: exactly the world sizes at which the ledger can be solved."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_accum.batch import BatchLedger, Indivisible, LegalWorlds, Neighbours, worlds_for, worlds_for_triple
from ds_accum.errors import BatchError

POSITIVE = st.integers(min_value=1)
MAYBE = st.none() | POSITIVE


def by_brute_force(whole: int, micro: int | None, accumulation: int | None, model_parallel: int) -> list[int]:
    """Every world that the ledger accepts; none lies past global batch x model parallel."""
    legal = []
    for world in range(1, whole * model_parallel + 1):
        if world % model_parallel:
            continue
        try:
            BatchLedger.solve(
                data_parallel_size=world // model_parallel,
                global_batch_size=whole,
                micro_batch_size=micro,
                gradient_accumulation_steps=accumulation,
            )
        except BatchError:
            continue
        legal.append(world)
    return legal


def test_the_legal_worlds_are_those_the_ledger_accepts() -> None:
    maybe = (None, 1, 2, 3)
    for whole, micro, accumulation, model_parallel in product((1, 6, 12, 16, 35, 36), maybe, maybe, (1, 2, 3)):
        worlds = worlds_for(whole, micro, accumulation, model_parallel_size=model_parallel)
        legal = by_brute_force(whole, micro, accumulation, model_parallel)
        assert worlds.listed == tuple(legal)
        assert bool(worlds) == bool(legal)
        assert (worlds.indivisible is None) == bool(legal)
        for world in range(1, whole * model_parallel + 3):
            assert (world in worlds) == (world in legal)
            assert worlds.nearest(world) == Neighbours(
                below=max((one for one in legal if one < world), default=None),
                above=min((one for one in legal if one > world), default=None),
            )


def test_a_full_triple_has_one_world_or_none() -> None:
    for whole, micro, accumulation, model_parallel in product(range(1, 40), (1, 2, 3), (1, 2, 4), (1, 2)):
        only = worlds_for_triple(whole, micro, accumulation, model_parallel_size=model_parallel)
        assert ([] if only is None else [only]) == by_brute_force(whole, micro, accumulation, model_parallel)


def test_a_triple_that_no_world_can_satisfy_says_why() -> None:
    worlds = worlds_for(100, 8, 2)
    assert not worlds
    assert worlds.indivisible == Indivisible(dividend=100, divisor=16)
    assert worlds.describe() == "none"
    assert worlds.nearest(4) == Neighbours(below=None, above=None)
    assert worlds_for_triple(100, 8, 2) is None


@given(whole=POSITIVE, micro=MAYBE, accumulation=MAYBE, model_parallel=POSITIVE, world=POSITIVE)
def test_huge_worlds_are_tested_and_their_neighbours_are_legal(
    whole: int, micro: int | None, accumulation: int | None, model_parallel: int, world: int
) -> None:
    whole *= (micro or 1) * (accumulation or 1)
    worlds = worlds_for(whole, micro, accumulation, model_parallel_size=model_parallel)
    assert worlds
    near = worlds.nearest(world)
    for value in near.values:
        assert value in worlds
    assert near.below is None or near.below < world
    assert near.above is None or near.above > world


def test_a_zero_or_negative_world_is_never_legal() -> None:
    assert 0 not in worlds_for(16)
    assert -4 not in worlds_for(16)


@pytest.mark.parametrize(
    ("worlds", "said"),
    [
        (worlds_for(16), "1, 2, 4, 8 or 16"),
        (worlds_for(16, 4), "1, 2 or 4"),
        (worlds_for(16, 16), "1"),
        (worlds_for(64, 2, 2), "16"),
        (worlds_for(64, 2, 2, model_parallel_size=8), "128"),
        (worlds_for(16, 4, model_parallel_size=8), "8, 16 or 32"),
        (worlds_for(100, 8), "none"),
        (worlds_for(512), "1, 2, 4, 8, 16, 32, 64, 128, 256 or 512"),
        (worlds_for(5040), "1, 2, 3, 4, 5, 6, 7, 8, ..., 2520 or 5040"),
        (worlds_for(2**28), f"any divisor of {2**28}"),
        (worlds_for(2**28, model_parallel_size=8), f"model parallel 8 x any divisor of {2**28}"),
        (worlds_for(10**30, 10**29), "1, 2, 5 or 10"),
    ],
)
def test_the_worlds_are_said_in_one_line(worlds: LegalWorlds, said: str) -> None:
    assert worlds.describe() == said


def test_worlds_too_many_to_list_are_still_tested_one_by_one() -> None:
    worlds = worlds_for(10**30)
    assert worlds.listed is None
    assert 64 in worlds
    assert 48 not in worlds
    assert worlds.nearest(48) == Neighbours(below=40, above=50)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"global_batch_size": 0}, "global batch must be at least 1, not 0"),
        ({"global_batch_size": None}, "global batch must be an integer, not None"),
        ({"micro_batch_size": "auto"}, "micro batch must be an integer, not 'auto'"),
        ({"gradient_accumulation_steps": 0.5}, "accumulation must be an integer, not 0.5"),
        ({"model_parallel_size": True}, "model parallel must be an integer, not True"),
        ({"model_parallel_size": None}, "model parallel must be an integer, not None"),
    ],
)
def test_what_is_no_positive_integer_is_refused_by_name(sizes: dict[str, object], said: str) -> None:
    with pytest.raises(BatchError) as caught:
        LegalWorlds(**{"global_batch_size": 8} | sizes)  # type: ignore[arg-type]
    assert str(caught.value) == said
