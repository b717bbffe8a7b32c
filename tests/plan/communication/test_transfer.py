"""What a rank sends for a collective, and that it is what the comparison says of measured counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_accum.compare.measures import ring_bytes
from ds_accum.compare.result import CollectiveCount
from ds_accum.plan.communication import Kind, Transfer, passed_bytes, sent_bytes, total_sent_bytes

KINDS: tuple[Kind, ...] = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "point-to-point")


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        ("all-reduce", 1500),
        ("reduce-scatter", 750),
        ("all-to-all", 750),
        ("all-gather", 3000),
        ("point-to-point", 1000),
    ],
)
def test_four_ranks_send_of_a_thousand_bytes_what_a_ring_has_to(kind: Kind, sent: int) -> None:
    assert sent_bytes(kind, 1000, 4) == sent


@pytest.mark.parametrize("kind", KINDS)
def test_one_rank_sends_nothing(kind: Kind) -> None:
    assert sent_bytes(kind, 1000, 1) == 0


@given(kind=st.sampled_from(KINDS[:-1]), size=st.integers(0, 10**12), ranks=st.integers(1, 10**5))
def test_it_is_what_the_comparison_makes_of_measured_bytes(kind: Kind, size: int, ranks: int) -> None:
    assert kind != "point-to-point"
    counted = CollectiveCount(kind=kind, moment="step", calls=1.0, bytes=float(size))
    assert sent_bytes(kind, size, ranks) == pytest.approx(ring_bytes([counted], ranks), abs=1, rel=1e-12)


@given(size=st.integers(0, 10**12), ranks=st.integers(1, 10**5))
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(size: int, ranks: int) -> None:
    whole = size * ranks
    parts = sent_bytes("reduce-scatter", whole, ranks) + sent_bytes("all-gather", size, ranks)
    assert sent_bytes("all-reduce", whole, ranks) == parts


def test_totals_are_those_of_all_calls() -> None:
    transfer = Transfer(
        name="gradients", kind="all-reduce", group="data", ranks=2, times=3, bytes_each=10, formula="", source=""
    )
    assert (transfer.passed_bytes, transfer.sent_bytes) == (30, 30)
    assert (passed_bytes([transfer, transfer]), total_sent_bytes([transfer, transfer])) == (60, 60)
