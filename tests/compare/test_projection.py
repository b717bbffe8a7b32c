from __future__ import annotations

import dataclasses

import pytest

from ds_accum.compare.formulas import expected_communication
from ds_accum.compare.measures import ring_bytes
from ds_accum.compare.projection import Projection, parse_projection, project
from ds_accum.compare.result import CollectiveCount, Communication
from ds_accum.errors import UsageError
from tests.compare.example import EXAMPLES, PARAMETERS, comparison, one_variant, replaced, variant

WORLDS = (64, 1024, 2048, 16384)


def test_the_option_is_read() -> None:
    read = parse_projection("world=64, 1024,64", bytes_per_second=1e9, latency_seconds=1e-6)
    assert read == Projection(worlds=(64, 1024), bytes_per_second=1e9, latency_seconds=1e-6)


@pytest.mark.parametrize(
    "text", ["", "world", "world=", "world=a", "ranks=64", "world=64,", "world=1", "world=0", "world=-2"]
)
def test_what_is_no_projection_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_projection(text)
    assert caught.value.remedy and "\n" not in str(caught.value)


@pytest.mark.parametrize(("bandwidth", "latency"), [(0, 0), (-1, 0), (float("nan"), 0), (float("inf"), 0), (1, -1)])
def test_what_is_no_link_is_refused(bandwidth: float, latency: float) -> None:
    with pytest.raises(UsageError, match="no link"):
        Projection(worlds=(2,), bytes_per_second=bandwidth, latency_seconds=latency)


@pytest.mark.parametrize("world", WORLDS)
def test_a_projection_is_what_the_formula_says_there_where_nothing_is_padded(world: int) -> None:
    parameters = 16384 * 4
    rows = [variant(engine, stage) for stage in range(4) for engine in ("stock", "token")]
    small = comparison(rows)
    counted = [expected_communication(row, small.spec, parameters=parameters) for row in rows]
    for row, counts in zip(rows, counted, strict=True):
        assert counts is not None
        small = replaced(small, row.name, communication=Communication(counted=counts, expected=None))
    large = dataclasses.replace(small.spec, world_size=world)
    for row, step in zip(rows, project(small, Projection(worlds=(world,))), strict=True):
        counts = expected_communication(row, large, parameters=parameters)
        assert counts is not None
        assert step.variant == row.name
        assert step.calls == sum(count.calls for count in counts)
        assert step.bytes_sent == pytest.approx(ring_bytes(counts, world))


def test_the_measured_world_is_projected_to_what_was_measured() -> None:
    measured = comparison()
    steps = {step.variant: step for step in project(measured, Projection(worlds=(2,)))}
    for result in measured.results:
        if result.name != "single":
            assert result.communication is not None
            assert steps[result.name].bytes_sent == pytest.approx(ring_bytes(result.communication.counted, 2))
            assert steps[result.name].global_batch_size == 16


def test_an_all_reduce_round_a_ring_sends_nearly_twice_its_input_and_waits_for_every_rank() -> None:
    counts = (CollectiveCount(kind="all-reduce", moment="boundary", calls=1.0, bytes=1e9),)
    measured = replaced(one_variant(), "zero-2 stock", communication=Communication(counted=counts, expected=None))
    (step,) = project(measured, Projection(worlds=(4,), bytes_per_second=1e9, latency_seconds=0.1))
    assert step.bytes_sent == 1.5e9
    assert step.transfer_seconds == pytest.approx(1.5)
    assert step.ring_latency_seconds == pytest.approx(0.6)
    assert step.least_latency_seconds == pytest.approx(0.4)
    assert step.ring_latency_share == pytest.approx(0.6 / 2.1)
    assert step.least_latency_share == pytest.approx(0.4 / 1.9)


def test_latency_takes_over_as_the_ranks_grow() -> None:
    shares = [step.ring_latency_share for step in project(one_variant(), Projection(worlds=WORLDS))]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] < 1


def test_a_global_batch_grows_with_the_ranks() -> None:
    assert [step.global_batch_size for step in project(one_variant(), Projection(worlds=WORLDS))] == [
        8 * world for world in WORLDS
    ]


@pytest.mark.parametrize("name", EXAMPLES)
def test_only_what_was_counted_is_projected(name: str) -> None:
    measured = EXAMPLES[name]()
    counted = [r.name for r in measured.results if r.communication is not None and r.name != "single"]
    steps = project(measured, Projection(worlds=(8, 16)))
    assert [step.variant for step in steps] == [name for name in counted for _ in range(2)]


def test_one_process_is_not_projected() -> None:
    assert PARAMETERS and project(comparison(world_size=1), Projection(worlds=(8,))) == ()
