"""What the micro-batches of a window add up to, and the seeds of their losses."""

from __future__ import annotations

import math
import weakref

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")

from ds_accum.engine.exchange import RECORD_FIELDS  # noqa: E402
from ds_accum.engine.window import AccumulationWindow, MicroBatch  # noqa: E402

NAN = float("nan")


def _scalar(number: float) -> torch.Tensor:
    return torch.tensor(number, dtype=torch.float64)


def _micro_batch(
    tokens: float, loss: float, *, denominator: float | None = None, zero_if_empty: bool = True
) -> MicroBatch:
    return MicroBatch(
        num_tokens=_scalar(tokens),
        denominator=_scalar(tokens if denominator is None else denominator),
        loss=_scalar(loss),
        zero_if_empty=zero_if_empty,
    )


def _window(constant: float = 8.0, loss_scale: float = 1.0, *, by_token: bool = True) -> AccumulationWindow:
    window = AccumulationWindow(device=torch.device("cpu"), by_token=by_token)
    window.open(_scalar(constant), loss_scale)
    return window


def _record(window: AccumulationWindow) -> dict[str, float]:
    record = window.record()
    assert record.dtype == torch.float64 and record.numel() * record.element_size() == 64
    return dict(zip(RECORD_FIELDS, record.tolist(), strict=True))


def test_a_seed_is_the_denominator_over_the_constant_times_the_loss_scale() -> None:
    window = _window(constant=8.0, loss_scale=1024.0)
    assert float(window.add(_micro_batch(3, 1.0))) == 1024 * 3 / 8
    assert float(window.add(_micro_batch(3, 1.0, denominator=1))) == 1024 / 8


def test_a_seed_of_as_many_tokens_as_the_constant_is_one_whatever_they_are() -> None:
    # n x (1 / n) is not 1 for 49.
    assert 49 * (1 / 49) != 1
    for tokens in range(1, 2000):
        assert float(_window(constant=tokens).add(_micro_batch(tokens, 1.0))) == 1.0


def test_a_mean_of_means_weighs_every_micro_batch_the_same() -> None:
    window = _window(constant=4.0, by_token=False)
    assert float(window.add(_micro_batch(3, 1.0))) == 0.25
    assert float(window.add(_micro_batch(1000, 1.0))) == 0.25
    # A sum of three losses is divided by three.
    assert float(window.add(_micro_batch(3, 1.0, denominator=1))) == pytest.approx(0.25 / 3)
    # Without a count, or without a counted token, the loss is the mean itself.
    assert float(window.add(_micro_batch(NAN, 1.0))) == 0.25
    assert float(window.add(_micro_batch(0, NAN))) == 0.25


def test_a_record_adds_up_tokens_and_losses() -> None:
    window = _window()
    window.add(_micro_batch(3, 2.0))
    window.add(_micro_batch(1, 5.0))
    assert _record(window) == {
        "num_tokens": 4,
        "loss_sum": 3 * 2.0 + 5.0,
        "micro_batches": 2,
        "nonfinite": 0,
        "smallest_filled": 1,
        "smallest": 1,
        "largest": 3,
        "constant": 8,
    }


def test_a_micro_batch_without_a_counted_token_changes_no_sum() -> None:
    window = _window()
    window.add(_micro_batch(3, 2.0))
    window.add(_micro_batch(0, NAN))
    record = _record(window)
    assert (record["num_tokens"], record["loss_sum"], record["micro_batches"]) == (3, 6, 2)
    assert (record["smallest"], record["smallest_filled"], record["largest"]) == (0, 3, 3)
    assert record["nonfinite"] == 0


def test_a_mean_over_nothing_is_not_finite_unless_its_gradient_is_known_to_be_zero() -> None:
    window = _window()
    window.add(_micro_batch(0, NAN, zero_if_empty=False))
    assert _record(window)["nonfinite"] == 1


def test_each_mean_over_nothing_is_judged_by_its_own_gradient() -> None:
    window = _window()
    window.add(_micro_batch(0, NAN, zero_if_empty=True))
    window.add(_micro_batch(3, 2.0, zero_if_empty=False))
    window.add(_micro_batch(0, NAN, zero_if_empty=False))
    window.add(_micro_batch(2, NAN, zero_if_empty=True))
    record = _record(window)
    assert (record["nonfinite"], record["num_tokens"], record["micro_batches"]) == (2, 5, 4)


@pytest.mark.parametrize("loss", [NAN, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_counted(loss: float) -> None:
    window = _window()
    window.add(_micro_batch(3, loss))
    window.add(_micro_batch(3, 1.0))
    assert _record(window)["nonfinite"] == 1


def test_a_window_without_a_micro_batch_says_nothing() -> None:
    window = AccumulationWindow(device=torch.device("cpu"))
    assert not window.is_open
    assert window.record().nan_to_num(nan=-1.0).tolist() == [0, 0, 0, 0, -1, -1, -1, -1]


def test_unknown_counts_make_the_total_unknown_but_not_the_mean_of_means() -> None:
    window = _window(by_token=False)
    window.add(_micro_batch(NAN, 2.0))
    window.add(_micro_batch(NAN, 4.0))
    record = _record(window)
    assert math.isnan(record["num_tokens"]) and record["loss_sum"] == 6 and record["nonfinite"] == 0


def test_a_window_is_opened_once_and_before_anything_is_added() -> None:
    window = AccumulationWindow(device=torch.device("cpu"))
    with pytest.raises(AssertionError):
        window.add(_micro_batch(1, 1.0))
    window = _window()
    window.add(_micro_batch(1, 1.0))
    with pytest.raises(AssertionError):
        window.open(_scalar(1.0), 1.0)


def test_nothing_of_a_micro_batch_is_kept_but_its_numbers() -> None:
    window, micro_batch = _window(), _micro_batch(3, 2.0)
    kept = [weakref.ref(tensor) for tensor in (micro_batch.num_tokens, micro_batch.denominator, micro_batch.loss)]
    window.add(micro_batch)
    del micro_batch
    assert [reference() for reference in kept] == [None, None, None]
    assert _record(window)["loss_sum"] == 6


def test_a_loss_that_is_changed_in_place_afterwards_counts_as_it_was() -> None:
    window, micro_batch = _window(), _micro_batch(3, 2.0)
    window.add(micro_batch)
    micro_batch.loss.fill_(100.0)
    assert _record(window)["loss_sum"] == 6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_loss_is_of_any_dtype_and_of_any_shape_with_one_element(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    window, loss = _window(), torch.full(shape, 1.3, dtype=dtype)
    window.add(MicroBatch(num_tokens=_scalar(3), denominator=_scalar(3), loss=loss, zero_if_empty=True))
    assert _record(window)["loss_sum"] == 3 * loss.double().item()


def test_a_window_has_room_for_any_number_of_micro_batches() -> None:
    window = _window()
    for tokens in range(1, 101):
        window.add(_micro_batch(tokens, 2.0))
    record = _record(window)
    assert window.micro_batches == record["micro_batches"] == 100
    assert (record["num_tokens"], record["loss_sum"]) == (5050, 10100)
    assert (record["smallest"], record["largest"]) == (1, 100)


def test_the_next_window_is_empty_and_uses_the_same_memory() -> None:
    window = _window(loss_scale=1024.0, by_token=False)
    window.add(_micro_batch(3, 2.0, zero_if_empty=False))
    window.add(_micro_batch(7, 5.0))
    following = window.next()
    assert (following.is_open, following.micro_batches, following.by_token) == (False, 0, False)
    assert (following.constant, following.loss_scale) == (None, 1.0)
    following.open(_scalar(8.0), 1.0)
    following.add(_micro_batch(2, 4.0))
    record = _record(following)
    assert (record["micro_batches"], record["num_tokens"], record["loss_sum"]) == (1, 2, 8)
    assert following._table.data_ptr() == window._table.data_ptr()
