"""Where to cut: compared with every cut there is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_accum.errors import UsageError
from ds_accum.plan.pipeline import PipelineShape, best_cut, even_cut, move_layers, simulate_pipeline, stage_times


def cuts(num_layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Every way to give each stage at least one layer."""
    if stages == 1:
        yield (num_layers,)
        return
    for first in range(1, num_layers - stages + 2):
        for rest in cuts(num_layers - first, stages - 1):
            yield (first, *rest)


def loads(
    layers: tuple[int, ...], layer_times: list[Fraction], factors: list[Fraction], fixed: list[Fraction]
) -> tuple[Fraction, ...]:
    found, start = [], 0
    for count, factor, constant in zip(layers, factors, fixed, strict=True):
        found.append(factor * sum(layer_times[start : start + count]) + constant)
        start += count
    return tuple(found)


def tenths(least: int, most: int) -> st.SearchStrategy[Fraction]:
    return st.integers(least, most).map(lambda number: Fraction(number, 10))


@settings(deadline=None)
@given(st.integers(1, 4), st.data())
def test_the_cut_is_the_best_of_all_cuts(stages: int, data: st.DataObject) -> None:
    layer_times = data.draw(st.lists(tenths(1, 30), min_size=stages, max_size=9))
    factors = data.draw(st.lists(tenths(1, 20), min_size=stages, max_size=stages))
    fixed = data.draw(st.lists(tenths(0, 30), min_size=stages, max_size=stages))
    cut = best_cut(layer_times=layer_times, factors=factors, fixed=fixed)

    def rank(layers: tuple[int, ...]) -> tuple[Any, ...]:
        found = loads(layers, layer_times, factors, fixed)
        return max(found), sum(count * count for count in layers), layers

    best = min(cuts(len(layer_times), stages), key=rank)
    assert cut.layers == best
    assert cut.loads == loads(best, layer_times, factors, fixed)
    assert cut.slowest == max(cut.loads)


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(0, 200))
def test_an_even_cut_is_that_of_deepspeed_s_uniform_partition_and_no_better_one_exists(stages: int, more: int) -> None:
    num_layers = stages + more
    layers = even_cut(num_layers, stages)
    assert sum(layers) == num_layers
    assert max(layers) - min(layers) <= 1
    assert list(layers) == sorted(layers, reverse=True)
    best = best_cut(layer_times=(1,) * num_layers, factors=(1,) * stages, fixed=(0,) * stages)
    assert sorted(best.layers) == sorted(layers)


@pytest.mark.engine
def test_an_even_cut_is_deepspeed_s_own() -> None:
    from deepspeed.runtime.utils import partition_uniform

    for stages in (1, 2, 3, 4, 7, 16):
        for num_layers in range(stages, 50):
            bounds = partition_uniform(num_layers, stages)
            theirs = tuple(int(end - start) for start, end in pairwise(bounds))
            assert even_cut(num_layers, stages) == theirs


def test_a_stage_that_is_30_percent_slower_gets_fewer_layers() -> None:
    times = stage_times(4, slow={2: 1.3})
    cut = move_layers(times, (8, 8, 8, 8))
    # A layer takes 3/8 on a fast stage: 9 of them 3.375, where the slow stage took 3.9 for its 8.
    assert cut.layers == (8, 9, 6, 9)
    assert cut.slowest == Fraction("3.375")
    shape = PipelineShape(schedule="1f1b", stages=4, micro_batches=32)
    factors = [load / now for load, now in zip(cut.loads, times.per_micro_batch, strict=True)]
    before, after = simulate_pipeline(shape, times), simulate_pipeline(shape, times.scaled(factors))
    assert after.step_time < before.step_time


def test_a_slow_stage_is_not_relieved_of_more_than_the_pace_asks_for() -> None:
    cut = move_layers(stage_times(8, slow={3: 1.4}), (6,) * 8)
    assert cut.layers == (6, 6, 6, 5, 6, 6, 6, 7)


def test_what_a_stage_does_besides_layers_stays_where_it_is() -> None:
    # The last stage takes 1.5, of which 0.5 are the logits: a layer takes 1/8 everywhere.
    cut = move_layers(stage_times(4, forward=[1, 1, 1, 1.5]), (8, 8, 8, 8), {3: 0.5})
    assert cut.layers == (9, 9, 9, 5)
    assert cut.loads == tuple(Fraction(3, 8) * Fraction(count) for count in (9, 9, 9, 9))


def test_a_thousand_layers_take_seconds() -> None:
    start = time.process_time()
    cut = best_cut(layer_times=(1,) * 1000, factors=(1, 1, 1.3, 1) * 16, fixed=(0,) * 64)
    assert sum(cut.layers) == 1000
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    ("layers", "fixed", "sentence"),
    [
        ((8, 8), {}, "layers of 2 stages for 4 stages"),
        ((8, 8, 8, 0), {}, "layers of stage 3 must be at least 1"),
        ((8, 8, 8, 8), {4: 0.1}, "no stage 4"),
        ((8, 8, 8, 8), {3: 1}, "leaves nothing of its forward of 1"),
        ((8, 8, 8, 8), {3: float("nan")}, "must be a number"),
        ((800, 800, 800, 800), {}, "3200 layers are more than the 1000"),
    ],
)
def test_what_does_not_fit_is_refused(layers: tuple[int, ...], fixed: dict[int, float], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        move_layers(stage_times(4), layers, fixed)


def test_fewer_layers_than_stages_are_refused() -> None:
    with pytest.raises(UsageError, match="3 layers can't fill 4 stages") as refused:
        even_cut(3, 4)
    assert refused.value.remedy == "use 3 stages or fewer"
    with pytest.raises(UsageError, match="3 fixed times for 4 stages"):
        best_cut(layer_times=(1,) * 8, factors=(1,) * 4, fixed=(0,) * 3)
