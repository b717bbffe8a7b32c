"""What can be told from a loss tensor alone."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from ds_accum.engine.losses import (  # noqa: E402
    HalfPrecision,
    in_float32,
    is_scalar_loss,
    loss_in,
    on_gradient,
    zero_if_empty,
)

LOGITS = torch.zeros(3, 4, requires_grad=True)
NOTHING = torch.full((3,), -100)


def _loss() -> Any:
    return (LOGITS * 2).sum()


# --- where a model's output has it ------------------------------------------------------------------------------------


def test_a_loss_is_the_output_its_attribute_its_entry_or_its_first_element() -> None:
    loss = _loss()
    for output in (loss, SimpleNamespace(loss=loss), {"loss": loss}, (loss, LOGITS), [loss]):
        assert loss_in(output) is loss


@pytest.mark.parametrize(
    "output",
    [
        LOGITS * 2,
        (LOGITS * 2, _loss()),
        {"logits": _loss()},
        (),
        None,
        3.0,
        SimpleNamespace(loss=None),
        torch.zeros(()),
    ],
    ids=["logits", "logits first", "no entry", "nothing", "None", "a number", "an empty attribute", "no graph"],
)
def test_what_is_no_loss_is_not_taken_for_one(output: Any) -> None:
    assert loss_in(output) is None


def test_a_loss_is_one_number_with_a_graph_behind_it() -> None:
    assert is_scalar_loss(_loss()) and is_scalar_loss(_loss().reshape(1))
    assert not is_scalar_loss(LOGITS * 2)
    assert not is_scalar_loss(_loss().detach())
    assert not is_scalar_loss(1.0)


# --- half precision ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "size"), [(torch.bfloat16, "0.39%"), (torch.float16, "0.05%")])
def test_a_loss_in_half_precision_warns_once_with_the_size_of_what_is_lost(dtype: Any, size: str) -> None:
    half = HalfPrecision()
    with pytest.warns(UserWarning, match=f"{str(dtype)[6:]} scalar.* by up to {size}; return it .* in float32"):
        full = in_float32(_loss().to(dtype), half)
    assert full.dtype == torch.float32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        in_float32(_loss().to(dtype), half)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_loss_in_full_precision_stays_what_it_is(dtype: Any) -> None:
    loss = _loss().to(dtype)
    assert in_float32(loss, HalfPrecision()) is loss


# --- the gradient -----------------------------------------------------------------------------------------------------


def test_a_hook_replaces_the_gradient_until_it_is_removed() -> None:
    leaf = torch.ones((), requires_grad=True)
    loss = leaf * 2
    handle = on_gradient(loss, lambda gradient: gradient * 5)
    loss.backward(retain_graph=True)
    handle.remove()
    loss.backward()
    assert float(leaf.grad) == 5 * 2 + 2


@pytest.mark.parametrize(
    "wrap",
    [
        lambda loss: loss,
        lambda loss: loss.double(),
        lambda loss: loss.reshape(1),
        lambda loss: loss.reshape(1).squeeze(),
        lambda loss: loss.clone(),
    ],
    ids=["as it is", "converted", "reshaped", "squeezed", "cloned"],
)
def test_torchs_cross_entropy_over_nothing_has_a_zero_gradient(wrap: Any) -> None:
    loss = wrap(F.cross_entropy(LOGITS, NOTHING))
    assert zero_if_empty(loss)
    (gradient,) = torch.autograd.grad(loss.sum(), LOGITS)
    assert torch.isnan(loss).all() and not gradient.any()


def test_a_mean_over_nothing_by_hand_has_none() -> None:
    counted = (NOTHING != -100).float()
    losses = F.cross_entropy(LOGITS, NOTHING.clamp(min=0), reduction="none")
    loss = (losses * counted).sum() / counted.sum()
    assert not zero_if_empty(loss)
    (gradient,) = torch.autograd.grad(loss, LOGITS)
    assert torch.isnan(gradient).all()


@pytest.mark.parametrize(
    "changed",
    [
        lambda loss: loss * 2,
        lambda loss: loss + LOGITS.square().sum(),
        lambda loss: LOGITS.exp().sum() - 0.1 * loss.clone(),
        lambda loss: checkpoint(lambda logits: F.cross_entropy(logits, NOTHING), LOGITS, use_reentrant=True),
    ],
    ids=["scaled", "one of two", "the second of two", "recomputed"],
)
def test_what_may_be_harmless_and_can_not_be_seen_is_left_open(changed: Any) -> None:
    assert zero_if_empty(changed(F.cross_entropy(LOGITS, NOTHING))) is None


@pytest.mark.parametrize("changed", [torch.exp, lambda loss: loss / 4, lambda loss: loss * 0 / torch.zeros(())])
def test_what_is_done_beyond_sums_and_factors_is_not_vouched_for(changed: Any) -> None:
    assert zero_if_empty(changed(F.cross_entropy(LOGITS, NOTHING))) is False


def test_a_loss_of_very_many_terms_is_not_followed_to_its_end() -> None:
    loss = LOGITS.sum()
    for _ in range(1000):
        loss = loss + 1
    assert zero_if_empty(loss) is False


def test_a_loss_without_a_graph_is_not_vouched_for() -> None:
    assert not zero_if_empty(torch.zeros(()))
