"""No count can exceed the labels of the forwards that it is for, as far as the host knows both."""

from __future__ import annotations

import pytest
import torch

from ds_accum.config.block import Counting
from ds_accum.engine.counting import PendingCount, PendingCounts, TokenCounter
from ds_accum.errors import CountError


def _waiting(*positions: int | None) -> PendingCounts:
    pending = PendingCounts()
    for number in positions:
        pending.add(PendingCount(torch.tensor(1.0), positions=number))
    return pending


@pytest.mark.parametrize("number", [17, 16.5, torch.tensor(17)])
def test_a_count_above_the_labels_is_refused_with_both_numbers(number: float | torch.Tensor) -> None:
    with pytest.raises(CountError, match=r"num_tokens is 1[67](\.5)?, but the batch has 16 labels, counted or not"):
        _waiting(16).check(number)


@pytest.mark.parametrize("positions", [(16,), (8, 8), (8, 4, 4)])
def test_as_many_as_all_forwards_have_together_is_right(positions: tuple[int, ...]) -> None:
    pending = _waiting(*positions)
    pending.check(16)
    with pytest.raises(CountError):
        pending.check(17)


def test_forwards_whose_labels_are_not_known_bound_nothing() -> None:
    _waiting(16, None).check(1000)
    _waiting().check(1000)
    _waiting(None).check(1000)


def test_forwards_that_are_done_bound_nothing_any_more() -> None:
    pending = _waiting(4)
    pending.clear()
    pending.add(PendingCount(torch.tensor(1.0), positions=16))
    pending.check(16)


def test_a_count_on_a_device_is_not_waited_for() -> None:
    _waiting(16).check(torch.empty((), device="meta"))


@pytest.mark.parametrize("path", ["labels", "batch.labels"])
def test_positions_are_those_of_the_labels_wherever_they_are(path: str) -> None:
    labels = torch.full((2, 8), -100)
    batch = {"labels": labels} if path == "labels" else {"batch": {"labels": labels}}
    module = torch.nn.Identity()
    pending = TokenCounter(Counting(labels=path, shift=False), module, torch.device("cpu")).count((), batch)
    assert pending.positions == 16
    assert pending.num_tokens is not None and float(pending.num_tokens) == 0
