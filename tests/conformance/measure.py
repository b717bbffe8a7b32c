"""What an optimizer step of an engine really did to the parameters, beside what it should have done.

The truth is one process in float64: the mean gradient over all micro-batches of the window and all ranks, at the
parameters that the engine started with. With SGD, a learning rate of 1 and no clipping the update is minus the gradient.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

WIDTH = 8
SAMPLES = 2


def micro_batch(rank: int, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets [SAMPLES, WIDTH] in float64, the same whoever asks; `number` counts the micro-batches of a rank."""
    generator = torch.Generator().manual_seed(1_000 * rank + number)
    inputs, targets = torch.randn(2, SAMPLES, WIDTH, generator=generator, dtype=torch.float64)
    return inputs, targets


def loss_of(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean squared error, a scalar in at least fp32: in fp16 the initial loss scale of 2**16 alone would overflow it."""
    outputs = outputs if outputs.dtype is torch.float64 else outputs.float()
    return torch.nn.functional.mse_loss(outputs, targets.to(outputs.dtype))


def true_gradient(model: torch.nn.Module, ranks: int, micro_batches: int) -> torch.Tensor:
    """The mean gradient of the first window, flat, of a model in float64."""
    losses = [
        loss_of(model(inputs), targets)
        for rank in range(ranks)
        for inputs, targets in (micro_batch(rank, number) for number in range(micro_batches))
    ]
    gradients = torch.autograd.grad(torch.stack(losses).mean(), list(model.parameters()))
    return torch.cat([gradient.flatten() for gradient in gradients])


def parameters_of(engine: Any) -> torch.Tensor:
    """The parameters as the next forward would see them, flat and whole, in float64."""
    parameters = list(engine.module.parameters())
    with _whole(parameters):
        return torch.cat([parameter.detach().double().flatten() for parameter in parameters])


@contextlib.contextmanager
def _whole(parameters: list[Any]) -> Iterator[None]:
    import deepspeed

    if any(hasattr(parameter, "ds_id") for parameter in parameters):
        with deepspeed.zero.GatheredParameters(parameters):
            yield
    else:
        yield


def measured_update(before: torch.Tensor, after: torch.Tensor, gradient: torch.Tensor) -> dict[str, float]:
    """Norms of the update and of the true gradient, how many times the one is the other, and how far off it is then.

    `ratio` is the factor k for which the update comes closest to -k times the gradient, `error` the rest of it, relative
    to the gradient's norm: 0 for SGD however it is scaled.
    """
    update, norm = before - after, float(gradient.norm())
    ratio = float(update @ gradient) / norm**2
    return {
        "update_norm": float(update.norm()),
        "gradient_norm": norm,
        "ratio": ratio,
        "error": float((update - ratio * gradient).norm()) / norm,
    }
