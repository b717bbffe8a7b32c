"""Windows that must not be applied, and counts that can't be."""

from __future__ import annotations

from typing import Any

import torch
from guards.loop import Loop
from model import num_tokens
from training import master_parameters

# --- skipping ---------------------------------------------------------------------------------------------------------


def lose_the_loss_on_rank_1(loop: Loop) -> dict[str, Any]:
    def factor(index: int) -> float:
        return float("inf") if loop.rank == 1 and index == 0 else 1.0

    return _skipped(loop, lambda index: _backward(loop, factor=factor(index)))


def count_no_token_anywhere(loop: Loop) -> dict[str, Any]:
    return _skipped(loop, lambda index: _backward(loop, ignored=True))


def take_a_mean_over_nothing(loop: Loop) -> dict[str, Any]:
    """A hand-written mean, as `(losses * mask).sum() / mask.sum()`: on rank 1 it is 0 / 0."""

    def backward(index: int) -> None:
        batch = loop.batch()
        loss = loop.engine(**batch)
        nothing = loop.rank == 1 and index == 0
        tokens = 0 if nothing else num_tokens(loop.case, batch["labels"])
        loop.engine.backward(loss * 0 / torch.zeros(()) if nothing else loss, num_tokens=tokens)

    return _skipped(loop, backward)


def leave_one_rank_without_a_token(loop: Loop) -> dict[str, Any]:
    """Not skipped: the others' tokens count."""
    return _skipped(loop, lambda index: _backward(loop, ignored=loop.rank == 1))


def _skipped(loop: Loop, backward: Any) -> dict[str, Any]:
    """A good window, the one in question, and a good one; what the middle one did."""
    loop.window()
    before = master_parameters(loop.engine, loop.case)
    scale = loop.engine._accumulation.carrier.loss_scale()
    for index in range(loop.case.accumulation):
        backward(index)
        loop.step()
    between = master_parameters(loop.engine, loop.case)
    kept = loop.engine._accumulation.carrier.loss_scale() == scale
    skipped = loop.engine.skipped_steps
    loop.window()
    after = master_parameters(loop.engine, loop.case)
    return {
        "untouched": bool((before == between).all()),
        "scale kept": kept,
        "skipped": skipped,
        "goes on": bool(torch.isfinite(after).all()) and not bool((after == between).all()),
    }


def _backward(loop: Loop, *, factor: float = 1.0, ignored: bool = False) -> None:
    batch = loop.batch()
    if ignored:
        batch["labels"].fill_(-100)
    loss = loop.engine(**batch)
    loop.engine.backward(loss * factor if factor != 1.0 else loss, num_tokens=num_tokens(loop.case, batch["labels"]))


# --- counts -----------------------------------------------------------------------------------------------------------


def pass_no_count(loop: Loop) -> None:
    loop.engine.backward(loop.engine(**loop.batch()))


def pass_a_negative_count(loop: Loop) -> None:
    loop.engine.backward(loop.engine(**loop.batch()), num_tokens=-1)


def pass_a_count_that_is_no_number(loop: Loop) -> None:
    loop.engine.backward(loop.engine(**loop.batch()), num_tokens=torch.tensor(float("nan")))


def pass_a_count_above_the_labels(loop: Loop) -> None:
    batch = loop.batch()
    loop.engine.backward(loop.engine(**batch), num_tokens=batch["labels"].numel() + 1)


def pass_a_tensor_above_the_labels(loop: Loop) -> None:
    batch = loop.batch()
    loop.engine.backward(loop.engine(**batch), num_tokens=torch.tensor(batch["labels"].numel() + 1))


def leave_two_forwards_for_one_backward(loop: Loop) -> None:
    loop.engine.backward(loop.engine(**loop.batch()) + loop.engine(**loop.batch()))


def count_two_forwards_together(loop: Loop) -> None:
    batches = [loop.batch(), loop.batch()]
    labels = sum(batch["labels"].numel() for batch in batches)
    loop.engine.backward(loop.engine(**batches[0]) + loop.engine(**batches[1]), num_tokens=labels)
    loop.step()
    loop.micro_batch()


def count_again_after_a_refusal(loop: Loop) -> None:
    loss = loop.engine(**loop.batch())
    for wrong in (-1, 10_000):
        try:
            loop.engine.backward(loss, num_tokens=wrong)
        except ValueError:
            continue
        raise AssertionError("it was not refused")
    loop.engine.backward(loss, num_tokens=3)
    loop.step()
    loop.micro_batch()
