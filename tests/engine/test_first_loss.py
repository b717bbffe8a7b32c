"""A first loss that is not what the settings say is refused, and one that proves nothing is let through."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ds_accum.config.block import Counting
from ds_accum.engine import first_loss
from ds_accum.engine.counting import TokenCounter
from ds_accum.engine.first_loss import check_first_loss, logits_in
from ds_accum.engine.losses import SeenLoss
from ds_accum.errors import CountError

SETTINGS = [(shift, reduction) for shift in (True, False) for reduction in ("mean", "sum")]


def logits_and_labels() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 11, (3, 7), generator=generator)
    labels[:, 5:] = -100
    return torch.randn(3, 7, 11, generator=generator), labels


def loss_of(logits: Tensor, labels: Tensor, *, shift: bool, reduction: str) -> Tensor:
    if shift:
        logits, labels = logits[:, :-1], labels[:, 1:]
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction=reduction)


@pytest.mark.parametrize(("shift", "reduction"), SETTINGS)
def test_the_loss_that_the_settings_describe_is_let_through(shift: bool, reduction: str) -> None:
    logits, labels = logits_and_labels()
    loss = loss_of(logits, labels, shift=shift, reduction=reduction)
    check_first_loss(loss, logits, labels, shift=shift, reduction=reduction, ignore_index=-100)


@pytest.mark.parametrize("actual", SETTINGS)
@pytest.mark.parametrize("declared", SETTINGS)
def test_a_loss_that_other_settings_describe_is_refused_with_those(
    declared: tuple[bool, str], actual: tuple[bool, str]
) -> None:
    if declared == actual:
        return
    logits, labels = logits_and_labels()
    loss = loss_of(logits, labels, shift=actual[0], reduction=actual[1])
    with pytest.raises(CountError) as caught:
        check_first_loss(loss, logits, labels, shift=declared[0], reduction=declared[1], ignore_index=-100)
    assert f'"loss_reduction": "{actual[1]}"' in str(caught.value)
    assert f'{{"shift": {str(actual[0]).lower()}}}' in str(caught.value)


def test_a_loss_with_a_term_of_its_own_proves_nothing() -> None:
    logits, labels = logits_and_labels()
    loss = 1.3 * loss_of(logits, labels, shift=True, reduction="mean")
    check_first_loss(loss, logits, labels, shift=False, reduction="mean", ignore_index=-100)


def test_labels_of_another_shape_and_labels_that_do_not_count_prove_nothing() -> None:
    logits, labels = logits_and_labels()
    check_first_loss(torch.tensor(1.0), logits, labels[:, :-1], shift=True, reduction="mean", ignore_index=-100)
    nothing = torch.full_like(labels, -100)
    check_first_loss(torch.tensor(1.0), logits, nothing, shift=True, reduction="mean", ignore_index=-100)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_untrained_model_tells_by_the_last_digits_of_a_loss_in_float32(dtype: torch.dtype) -> None:
    """All its means are near the logarithm of the vocabulary's size; a loss in half precision can't tell them apart."""
    generator = torch.Generator().manual_seed(0)
    logits, labels = 0.02 * torch.randn(4, 16, 1000, generator=generator), torch.randint(0, 1000, (4, 16))
    shifted, unshifted = (loss_of(logits, labels, shift=shift, reduction="mean") for shift in (True, False))
    assert 1e-4 < abs(float(shifted - unshifted)) / float(shifted) < 1e-2
    expected = pytest.raises(CountError, match="without the first of") if dtype is torch.float32 else nullcontext()
    with expected:
        check_first_loss(shifted.to(dtype), logits, labels, shift=False, reduction="mean", ignore_index=-100)


def test_a_first_micro_batch_without_a_counted_token_leaves_the_comparison_to_the_next() -> None:
    logits, labels = logits_and_labels()
    counter = TokenCounter(Counting(shift=False), nn.Identity(), torch.device("cpu"))
    for counted, compared in ((torch.full_like(labels, -100), False), (labels, True)):
        pending = counter.count((), {"labels": counted})
        pending.loss = SeenLoss(loss_of(logits, labels, shift=False, reduction="mean"))
        output = {"logits": logits}
        assert counter.check_against(pending, output, (), {"labels": counted}, reduction="mean") is compared


def test_logits_are_compared_a_piece_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = logits_and_labels()
    monkeypatch.setattr(first_loss, "_CHUNK_BYTES", 4 * logits.shape[-1] * 2)
    loss = loss_of(logits, labels, shift=True, reduction="mean")
    with pytest.raises(CountError, match="without the first of each sequence"):
        check_first_loss(loss, logits, labels, shift=False, reduction="mean", ignore_index=-100)


@pytest.mark.parametrize("make", [lambda t: {"logits": t}, lambda t: (0, t), lambda t: SimpleNamespace(logits=t)])
def test_logits_are_found_in_every_kind_of_output(make: Any) -> None:
    logits, _ = logits_and_labels()
    assert logits_in(make(logits)) is logits


@pytest.mark.parametrize("output", [torch.tensor(1.0), (1,), {}, SimpleNamespace(), {"logits": torch.zeros(2, 3)}])
def test_an_output_without_logits_has_none(output: Any) -> None:
    assert logits_in(output) is None


def test_more_tokens_than_the_model_was_told_of_are_refused() -> None:
    _, labels = logits_and_labels()
    counter = TokenCounter(Counting(shift=False), nn.Identity(), torch.device("cpu"))
    batch = {"labels": labels, "num_items_in_batch": 3}
    pending = counter.count((), batch)
    pending.loss = SeenLoss(torch.tensor(1.0))
    with pytest.raises(CountError, match="15 tokens of the first micro-batch count.*num_items_in_batch = 3"):
        counter.check_against(pending, None, (), batch, reduction="mean")


def test_the_declared_shift_is_compared_with_the_first_output() -> None:
    logits, labels = logits_and_labels()
    counter = TokenCounter(Counting(shift=False), nn.Identity(), torch.device("cpu"))
    pending = counter.count((), {"labels": labels})
    pending.loss = SeenLoss(loss_of(logits, labels, shift=True, reduction="mean"))
    with pytest.raises(CountError, match="without the first of each sequence"):
        counter.check_against(pending, {"logits": logits}, (), {"labels": labels}, reduction="mean")
