"""Which tokens count, and which count belongs to which loss: without an engine, without processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ds_accum.config.block import Counting  # noqa: E402
from ds_accum.engine.counting import (  # noqa: E402
    PendingCount,
    PendingCounts,
    TokenCounter,
    as_count,
)
from ds_accum.errors import CountError  # noqa: E402

CPU = torch.device("cpu")
LABELS = torch.tensor([[7, 1, -100, 2], [-100, -100, 3, 4]])
NOT_IGNORED, NOT_FIRST_AND_NOT_IGNORED = 5, 4


class Model(nn.Module):
    def forward(self, input_ids: Any, labels: Any = None) -> Any:
        return input_ids, labels


def _counter(user: Any = None, **settings: Any) -> TokenCounter:
    return TokenCounter(Counting(**settings), Model(), CPU, user)


def _number(counter: TokenCounter, *inputs: Any, **kwargs: Any) -> float:
    pending = counter.count(inputs, kwargs)
    assert pending.num_tokens is not None, pending.problem
    assert pending.num_tokens.dtype == torch.float64 and pending.num_tokens.shape == ()
    return float(pending.num_tokens)


# --- which tokens -----------------------------------------------------------------------------------------------------


def test_labels_count_unless_they_are_ignored() -> None:
    assert _number(_counter(shift=False), labels=LABELS) == NOT_IGNORED
    assert _number(_counter(shift=False, ignore_index=1), labels=LABELS) == LABELS.numel() - 1


def test_a_shifted_loss_drops_the_first_label_of_each_sequence() -> None:
    assert _number(_counter(shift=True), labels=LABELS) == NOT_FIRST_AND_NOT_IGNORED
    assert _number(_counter(shift=True), labels=LABELS[0]) == 2


@pytest.mark.parametrize(
    ("inputs", "kwargs"),
    [
        ((), {"labels": LABELS}),
        ((torch.zeros(1),), {"labels": LABELS}),
        ((torch.zeros(1), LABELS), {}),
        (({"input_ids": torch.zeros(1), "labels": LABELS},), {}),
    ],
    ids=["by name", "partly by name", "by position", "in one mapping"],
)
def test_labels_are_found_however_the_model_is_called(inputs: Any, kwargs: Any) -> None:
    assert _number(_counter(shift=False), *inputs, **kwargs) == NOT_IGNORED


def test_labels_can_lie_deeper() -> None:
    counter = _counter(shift=False, labels="batch.targets")
    assert _number(counter, batch={"targets": LABELS}) == NOT_IGNORED
    assert _number(counter, batch=SimpleNamespace(targets=LABELS)) == NOT_IGNORED
    assert _number(counter, **{"batch.targets": LABELS}) == NOT_IGNORED


def test_a_loss_mask_counts_in_place_of_labels() -> None:
    counter = _counter(loss_mask="mask")
    assert _number(counter, labels=LABELS, mask=torch.tensor([0.0, 0.5, 2.0])) == 2
    assert _number(counter, mask=torch.tensor([True, False])) == 1


def test_labels_that_the_caller_has_shifted_count_as_they_are() -> None:
    for shift in (True, None):
        assert _number(_counter(shift=shift), shift_labels=LABELS, labels=None) == NOT_IGNORED
    # A loss that takes `labels` as they are takes no others.
    assert _number(_counter(shift=False), shift_labels=LABELS, labels=LABELS[:1]) == 3


def test_a_function_is_called_like_the_model() -> None:
    assert _number(_counter(lambda first, *, labels: len(first) + labels), [1, 2], labels=3) == 5
    with pytest.raises(CountError, match="num_tokens is -1"):
        _counter(lambda **_: -1).count((), {})


def test_what_is_missing_is_only_said_when_the_count_is_needed() -> None:
    for counter, kwargs, problem in (
        (_counter(shift=True), {}, 'the batch has no labels "labels"'),
        (_counter(shift=True, labels="a.b"), {"a": {}}, 'the batch has no labels "a.b"'),
        (_counter(loss_mask="mask"), {"labels": LABELS}, 'the batch has no loss mask "mask"'),
        (_counter(), {"labels": LABELS}, r"not known for this model \(ds_accum.counting.shift is not set\)"),
    ):
        pending = counter.count((), kwargs)
        assert pending.num_tokens is None
        waiting = PendingCounts()
        waiting.add(pending)
        with pytest.raises(CountError, match=problem):
            waiting.required()


def test_what_hugging_face_divides_by_is_kept_apart() -> None:
    pending = _counter(shift=False).count((), {"labels": LABELS, "num_items_in_batch": 17})
    assert float(pending.num_tokens) == NOT_IGNORED and float(pending.denominator) == 17


def test_the_source_of_counts_is_told() -> None:
    assert _counter(lambda: 1).source == "token_counter"
    assert _counter(loss_mask="m").source == 'loss mask "m"'
    assert _counter(shift=True).source == 'labels "labels", first of each sequence dropped'
    assert _counter(shift=False).source == 'labels "labels"'
    assert _counter().source == 'labels "labels", shift not declared'


# --- which loss -------------------------------------------------------------------------------------------------------


def _pending(number: float) -> PendingCount:
    return PendingCount(as_count(number, CPU))


def test_a_loss_takes_the_count_of_the_one_forward_before_it() -> None:
    waiting = PendingCounts()
    waiting.add(_pending(3))
    assert float(waiting.required().num_tokens) == 3
    waiting.clear()
    with pytest.raises(CountError, match="no forward in training came since the last backward"):
        waiting.required()


@pytest.mark.parametrize("forwards", [2, 3, 5])
def test_with_several_forwards_no_count_is_the_losses_own(forwards: int) -> None:
    waiting = PendingCounts()
    for number in range(forwards):
        waiting.add(_pending(number))
    assert waiting.only() is None
    with pytest.raises(CountError, match=f"{forwards} forwards in training came since the last backward") as caught:
        waiting.required()
    assert "num_tokens=n" in str(caught.value)
    waiting.clear()
    waiting.add(_pending(8))
    assert float(waiting.required().num_tokens) == 8


@pytest.mark.parametrize("number", [0, 5, 2.0, torch.tensor(5), torch.tensor([[5]]), torch.tensor(2.5)])
def test_a_count_becomes_one_float64(number: Any) -> None:
    count = as_count(number, CPU)
    assert count.dtype == torch.float64 and count.shape == () and float(count) == float(number)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (-1, "num_tokens is -1"),
        (float("nan"), "num_tokens is nan"),
        (float("inf"), "num_tokens is inf"),
        (torch.tensor(-2), "num_tokens is -2"),
        (torch.tensor(float("nan")), "num_tokens is nan"),
        (torch.tensor([1, 2]), r"num_tokens has shape \(2,\), but is one number a micro-batch"),
        (torch.tensor([]), r"num_tokens has shape \(0,\)"),
        (True, "num_tokens is a bool"),
        (torch.tensor(True), "num_tokens is a bool"),
        ("5", "num_tokens is a str"),
        ([5], "num_tokens is a list"),
    ],
)
def test_what_is_no_number_of_tokens_is_refused(number: Any, message: str) -> None:
    with pytest.raises(CountError, match=message):
        as_count(number, CPU)
