"""Which tokens count, and which count belongs to which loss.

    counter = TokenCounter(Counting(labels="labels", shift=True), module)
    pending = counter.count(inputs, kwargs)      # before the forward; numbers stay on the device
    pending = pending_counts.required()          # at the backward: exactly one forward may be waiting for it

A label counts if it differs from `ignore_index`. Whether the loss drops the first label of each sequence is decided
from the model where that is known and must be declared where it is not: a wrong guess would be silent.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Number
from typing import Any

import torch
from torch import Tensor, nn

from ds_accum.config.block import Counting
from ds_accum.engine.first_loss import check_first_loss, logits_in
from ds_accum.engine.hugging_face import model_shifts_labels
from ds_accum.engine.losses import SeenLoss
from ds_accum.engine.scalars import scalar
from ds_accum.errors import CountError

__all__ = [
    "PendingCount",
    "PendingCounts",
    "TokenCounter",
    "UserCounter",
    "as_count",
    "denominator_of",
]

UserCounter = Callable[..., "int | Tensor"]
"""What `initialize(token_counter=...)` takes: called like the model, returns the counted tokens of the micro-batch."""


@dataclass(slots=True)
class PendingCount:
    """What a forward in training leaves for the backward of its loss."""

    num_tokens: Tensor | None
    """Counted tokens, a float64 scalar on the device; None where nothing says which tokens count."""

    problem: str | None = None
    """Why `num_tokens` is None."""

    denominator: Tensor | None = None
    """What the model divides its loss by where that is not `num_tokens`: Hugging Face's `num_items_in_batch`."""

    positions: int | None = None
    """Labels in the batch, or places in its loss mask, counted or not: more than a loss is over; None without any."""

    positions_of: str = "labels"
    """What these are."""

    loss: SeenLoss | None = field(default=None, repr=False)
    """The loss in the model's output, where there is one."""

    @property
    def is_unknown_mean(self) -> bool:
        """Whether the loss is a mean over its micro-batch, of a number of tokens that nobody knows."""
        return self.num_tokens is None and self.denominator is None


class TokenCounter:
    """Counts the tokens of a micro-batch from what the model is called with."""

    def __init__(
        self, counting: Counting, module: nn.Module, device: torch.device, user_counter: UserCounter | None = None
    ) -> None:
        self._counting = counting
        self._device = device
        self._user_counter = user_counter
        self._parameters = _forward_parameters(module)
        self._shift = counting.shift if counting.shift is not None else model_shifts_labels(module)

    @property
    def source(self) -> str:
        """Where counts come from, for people: `labels "labels", first of each sequence dropped`."""
        if self._user_counter is not None:
            return "token_counter"
        if self._counting.loss_mask is not None:
            return f'loss mask "{self._counting.loss_mask}"'
        shifted = {True: ", first of each sequence dropped", False: "", None: ", shift not declared"}[self._shift]
        return f'labels "{self._counting.labels}"{shifted}'

    def count(self, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> PendingCount:
        """The counted tokens of a call of the model. Never raises for what is missing: num_tokens= may still come."""
        arguments = self._arguments(inputs, kwargs)
        denominator = arguments.get("num_items_in_batch")
        pending = self._counted(inputs, kwargs, arguments)
        pending.positions = self._positions(arguments)
        if self._counting.loss_mask is not None:
            pending.positions_of = "places in its loss mask"
        if denominator is not None:
            pending.denominator = as_count(denominator, self._device)
        return pending

    def check_against(
        self, pending: PendingCount, output: Any, inputs: Sequence[Any], kwargs: Mapping[str, Any], *, reduction: str
    ) -> bool:
        """Compares a count with the loss that it is for, as far as the model's output allows. Reads from the device.

        Returns whether that was all that can be compared; a micro-batch without a counted token leaves it to the next.

        Raises CountError for settings that the loss contradicts, and for more tokens than `num_items_in_batch`.
        """
        if pending.num_tokens is None or pending.loss is None or self._user_counter is not None:
            return True
        if pending.denominator is not None:
            counted, told = float(pending.num_tokens), float(pending.denominator)
            if counted > told:
                raise CountError(
                    f"{counted:.0f} tokens of the first micro-batch count, but the model was given "
                    f"num_items_in_batch = {told:.0f} for the whole step",
                    remedy="count what the model counts: ds_accum.counting, or a token_counter",
                )
            return True
        arguments = self._arguments(inputs, kwargs)
        labels, logits = _value_at(arguments, self._counting.labels), logits_in(output)
        by_labels = self._counting.loss_mask is None and arguments.get("shift_labels") is None
        if by_labels and self._shift is not None and isinstance(labels, Tensor) and logits is not None:
            return check_first_loss(
                pending.loss.value,
                logits,
                labels,
                shift=self._shift,
                reduction=reduction,
                ignore_index=self._counting.ignore_index,
            )
        return True

    def _counted(self, inputs: Sequence[Any], kwargs: Mapping[str, Any], arguments: Mapping[str, Any]) -> PendingCount:
        if self._user_counter is not None:
            return PendingCount(as_count(self._user_counter(*inputs, **kwargs), self._device))
        mask_path = self._counting.loss_mask
        if mask_path is not None:
            mask = _value_at(arguments, mask_path)
            if not isinstance(mask, Tensor):
                return PendingCount(None, f'the batch has no loss mask "{mask_path}"')
            return PendingCount(_number_of(mask != 0, self._device))
        # The loss is then taken over these as they are (Hugging Face's causal models, when a caller has shifted).
        shifted = arguments.get("shift_labels")
        if isinstance(shifted, Tensor) and self._shift is not False:
            return PendingCount(_number_of(shifted != self._counting.ignore_index, self._device))
        labels = _value_at(arguments, self._counting.labels)
        if not isinstance(labels, Tensor):
            return PendingCount(None, f'the batch has no labels "{self._counting.labels}"')
        if self._shift is None:
            problem = "whether the loss drops the first label of each sequence is not known for this model"
            return PendingCount(None, f"{problem} (ds_accum.counting.shift is not set)")
        if self._shift:
            labels = labels[..., 1:]
        return PendingCount(_number_of(labels != self._counting.ignore_index, self._device))

    def _positions(self, arguments: Mapping[str, Any]) -> int | None:
        """How many labels there are, or places in the mask: a shape, which the host knows."""
        mask_path = self._counting.loss_mask
        if mask_path is not None:
            mask = _value_at(arguments, mask_path)
            return mask.numel() if isinstance(mask, Tensor) else None
        for labels in (arguments.get("shift_labels"), _value_at(arguments, self._counting.labels)):
            if isinstance(labels, Tensor):
                return labels.numel()
        return None

    def _arguments(self, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Everything the model is called with, by name; a batch given as one mapping is looked into."""
        if not inputs:
            return kwargs
        named = dict(zip(self._parameters, inputs, strict=False))
        if isinstance(inputs[0], Mapping):
            named.update(inputs[0])
        named.update(kwargs)
        return named


class PendingCounts:
    """The forwards in training whose loss has not been propagated back."""

    def __init__(self) -> None:
        self._waiting: list[PendingCount] = []
        self._more = 0
        self._positions: int | None = 0
        self._of = "labels"

    def add(self, pending: PendingCount) -> None:
        """Notes a forward. Only the first two are kept: with two it is already unclear which count is meant."""
        self._of = pending.positions_of
        known = self._positions is not None and pending.positions is not None
        self._positions = (self._positions or 0) + (pending.positions or 0) if known else None
        if len(self._waiting) < 2:
            self._waiting.append(pending)
        else:
            self._more += 1

    def only(self) -> PendingCount | None:
        """The one forward that waits for its backward; None if none does or several do."""
        return self._waiting[0] if len(self._waiting) == 1 else None

    def required(self) -> PendingCount:
        """The one forward that waits for its backward. It goes on waiting until `clear`: errors lose nothing.

        Raises CountError where there is none, where there are several, or where it is unknown.
        """
        number = len(self._waiting) + self._more
        if number != 1:
            what = "no forward in training" if number == 0 else f"{number} forwards in training"
            raise CountError(
                f"{what} came since the last backward, so the loss has no token count of its own",
                remedy="pass it: engine.backward(loss, num_tokens=n)",
            )
        pending = self._waiting[0]
        if pending.num_tokens is None:
            raise CountError(
                f"the loss has no token count: {pending.problem}",
                remedy="set ds_accum.counting in the config, give initialize a token_counter, "
                "or pass the count: engine.backward(loss, num_tokens=n)",
            )
        return pending

    def begin_window(self) -> None:
        """Forgets the forwards of the window that has ended: all whose loss nobody holds any more, to propagate it."""
        live = (
            [] if self._more else [one for one in self._waiting if one.loss is not None and one.loss.tensor is not None]
        )
        self.clear()
        for pending in live:
            self.add(pending)

    def clear(self) -> None:
        """Forgets every forward: their loss was propagated back with a count of its own, or never will be."""
        self._waiting.clear()
        self._more, self._positions = 0, 0

    def check(self, num_tokens: int | float | Tensor) -> None:
        """Raises CountError for a count that is larger than the labels of all forwards since the last backward.

        A count that lies on a device is not waited for.
        """
        if isinstance(num_tokens, Tensor) and num_tokens.device.type != "cpu":
            return
        if self._positions and float(num_tokens) > self._positions:
            raise CountError(
                f"num_tokens is {float(num_tokens):g}, but the batch has {self._positions} {self._of}, counted or not",
                remedy="pass how many tokens this loss is over on this rank: not those of the window, nor of all ranks",
            )


def as_count(number: int | float | Tensor, device: torch.device) -> Tensor:
    """A number of tokens as a float64 scalar on the device; a tensor is not read on the host.

    Raises CountError if it is negative, not finite or no scalar, as far as that is known without waiting for a device.
    """
    if isinstance(number, Tensor):
        if number.numel() != 1:
            raise CountError(
                f"num_tokens has shape {tuple(number.shape)}, but is one number a micro-batch",
                remedy="pass its sum",
            )
        if number.device.type == "cpu":
            return as_count(number.item(), device)
        return number.detach().reshape(()).to(device=device, dtype=torch.float64)
    if isinstance(number, bool) or not isinstance(number, int | float | Number):
        raise CountError(
            f"num_tokens is a {type(number).__name__}", remedy="pass the number of tokens that the loss counts"
        )
    if not 0 <= number < float("inf"):
        raise CountError(f"num_tokens is {number}", remedy="pass how many tokens the loss counts, 0 or more")
    return scalar(float(number), device)


def denominator_of(
    pending: PendingCount | None, loss: SeenLoss, count: Tensor, *, is_sum: bool, divided_already: bool
) -> Tensor:
    """What the sum of token losses was divided by to give the loss: a float64 scalar on the device.

    `divided_already`: the caller says that the loss is divided by what the whole step holds (`scale_wrt_gas=False`).
    Raises CountError where that can't be told.
    """
    if is_sum:
        return torch.ones_like(count)
    if pending is not None and pending.denominator is not None:
        if loss is pending.loss:
            return pending.denominator
        raise CountError(
            "the model was given num_items_in_batch, and the loss is not the one in its output, so what it was divided "
            "by is not known",
            remedy='pass the loss as the model returns it, or their sum with "loss_reduction": "sum"',
        )
    if divided_already:
        raise CountError(
            "scale_wrt_gas=False says that the loss is divided by what a whole step holds, but a mean over its own "
            "micro-batch is expected",
            remedy='pass the mean without scale_wrt_gas=False, or a sum with "loss_reduction": "sum"',
        )
    return count


def _number_of(counted: Tensor, device: torch.device) -> Tensor:
    return counted.sum(dtype=torch.float64).to(device, non_blocking=True)


def _forward_parameters(module: nn.Module) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):
        return ()


def _value_at(values: Mapping[str, Any], dotted: str) -> Any:
    """What a dotted path leads to, through mappings and attributes; None where it leads nowhere."""
    if dotted in values:
        return values[dotted]
    value: Any = values
    for part in dotted.split("."):
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
        if value is None:
            return None
    return value
