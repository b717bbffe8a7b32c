"""What can be told from a loss tensor: its dtype, whether an empty mean is harmless, where a model's output has it."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["HalfPrecision", "SeenLoss", "in_float32", "is_scalar_loss", "loss_in", "on_gradient", "zero_if_empty"]

# Backward steps that pass a gradient on as it is, or nearly: what lies below them made the loss.
_PASSING = (
    "ToCopyBackward",
    "ViewBackward",
    "ReshapeAliasBackward",
    "SqueezeBackward",
    "CloneBackward",
    "AliasBackward",
)
# Those that make one loss of several terms, or scale it. A division may be the one by zero tokens.
_COMBINING = ("AddBackward", "SubBackward", "MulBackward")
# Those that stand for a part of the model that torch.compile or a reentrant checkpoint has made one step of.
_HIDING = ("CompiledFunctionBackward", "CheckpointFunctionBackward")
_MOST_STEPS = 64


class HalfPrecision:
    """Warns once about losses that come in half precision."""

    def __init__(self) -> None:
        self._warned = False

    def warn(self, dtype: torch.dtype) -> None:
        """The size of what is lost: half a unit in the last place, of the loss and of the weight it is given."""
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            f"the loss is a {str(dtype).removeprefix('torch.')} scalar: it and its token weight are rounded by up to "
            f"{torch.finfo(dtype).eps / 2:.2%}; return it from the model in float32",
            UserWarning,
            stacklevel=3,
        )


class SeenLoss:
    """What is remembered of a loss: all but its graph, which is freed with the output that nobody propagates back."""

    def __init__(self, loss: Tensor) -> None:
        self.value = loss.detach()
        self.zero_if_empty = zero_if_empty(loss)
        self._tensor = weakref.ref(loss)

    @property
    def tensor(self) -> Tensor | None:
        """The loss itself; None where nobody holds it any more, as in `(engine(**batch) * 2).backward()`."""
        return self._tensor()


def in_float32(loss: Tensor, half: HalfPrecision) -> Tensor:
    """The loss in float32 (float64 stays), with a warning if that comes too late."""
    if loss.dtype in (torch.float16, torch.bfloat16):
        half.warn(loss.dtype)
        return loss.float()
    return loss


def is_scalar_loss(value: Any) -> bool:
    """Whether a value can be propagated back as it is: one number, with a graph behind it."""
    return isinstance(value, Tensor) and value.numel() == 1 and value.grad_fn is not None


def loss_in(output: Any) -> Tensor | None:
    """The loss in a model's output: the output itself, its `loss`, or its first element; None where there is none."""
    candidate: Any
    if isinstance(output, Tensor):
        candidate = output
    elif isinstance(output, Mapping):
        candidate = output.get("loss")
    elif isinstance(output, tuple | list):
        candidate = output[0] if output else None
    else:
        candidate = getattr(output, "loss", None)
    return candidate if is_scalar_loss(candidate) else None


def on_gradient(loss: Tensor, hook: Callable[[Tensor], Tensor]) -> Any:
    """Has a function replace the gradient of a tensor as it arrives; returns the handle that removes it."""
    return loss.register_hook(hook)  # type: ignore[no-untyped-call]  # torch has no types for it


def zero_if_empty(loss: Tensor) -> bool | None:
    """Whether a mean over no token, which is NaN, has a zero gradient all the same; None where that can't be seen.

    torch's cross entropy has: it propagates to no position. A sum divided by zero propagates NaN to all of them. What
    is compiled or recomputed hides its steps; and terms beside a cross entropy, and factors, may be no number.
    """
    waiting, is_certain, is_found, seen = [loss.grad_fn], True, False, 0
    while waiting and seen < _MOST_STEPS:
        node, seen = waiting.pop(), seen + 1
        if node is None:
            continue
        name = node.name()
        if name.startswith("NllLoss"):
            is_found = True
            continue
        below = [function for function, _ in node.next_functions if function is not None]
        if name.startswith(_HIDING):
            is_certain, is_found = False, True
        elif name.startswith(_COMBINING):
            is_certain = False
            waiting += below
        # ZeRO-3 wraps the output of every module in functions of its own.
        elif len(below) == 1 and (name.startswith(_PASSING) or "BackwardFunction" in name):
            waiting += below
    return (is_certain or None) if is_found else False
