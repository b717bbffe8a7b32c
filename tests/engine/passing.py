"""What the ranks of `test_passing_through.py` do: backwards that pass through an engine without being its own."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from tiny import MeanOfValues, batch, moved, parameters, sgd, start
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ds_accum.errors import CountError

Arguments = dict[str, Any]


class Generator(nn.Module):
    """`forward(values[N])` is [N, 4]: each value, times one and a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))

    def forward(self, values: Tensor) -> Tensor:
        return values[:, None] * (1 + self.weight)


class Discriminator(nn.Module):
    """`forward(made[N, 4], labels[N])` is the mean over all N of the weighted sum of the four."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))

    def forward(self, made: Tensor, labels: Tensor) -> Tensor:
        return (made * (1 + self.weight)).sum(1).masked_select(labels > 0).mean()


class _Both:
    """A generator and a discriminator. A step of the second is worth the mean of what it has seen, in each parameter."""

    def __init__(self, settings: dict[str, Any], accumulation: int, kind: str = "ours") -> None:
        made, seen = Generator(), Discriminator()
        self.generator = start(kind, model=made, optimizer=sgd(made), accumulation=accumulation, **settings)
        self.discriminator = start("ours", model=seen, optimizer=sgd(seen), accumulation=accumulation, **settings)

    def train_discriminator(self, value: float, samples: int) -> None:
        loss = self.discriminator(torch.full((samples, 4), value), torch.ones(samples, dtype=torch.long))
        self.discriminator.backward(loss)

    def train_generator(self, *, frozen: bool, value: float = 3.0) -> None:
        """Through the discriminator, whose gradient with respect to what was made is 1 in the beginning."""
        self.discriminator.module.requires_grad_(not frozen)
        loss = 2.0 * self.discriminator(self.generator(torch.full((2,), value)), torch.ones(2, dtype=torch.long))
        if type(self.generator).__name__ == "DeepSpeedEngine":
            self.generator.backward(loss)
        else:
            self.generator.backward(loss, num_tokens=2)
        self.discriminator.module.requires_grad_(True)


def frozen(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """The generator is trained inside the discriminator's windows and between them, whose counts differ."""
    accumulation = arguments["accumulation"]
    both = _Both(arguments["settings"], accumulation, arguments.get("generator", "ours"))
    steps = []
    for _ in range(2):
        before = moved(both.discriminator)
        for micro_batch in range(accumulation):
            both.train_discriminator(micro_batch + 1.0, samples=8 - 2 * micro_batch)
            if not steps:
                both.train_generator(frozen=True)
                both.generator.step()
            both.discriminator.step()
        steps.append(moved(both.discriminator) - before)
    found = {"discriminator": steps, "generator": moved(both.generator)}
    return found | {"tokens": both.discriminator.last_step.num_tokens}


def trainable(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """The discriminator's parameters take the gradient, too."""
    settings = arguments["settings"] | {"block": {"counting": {"shift": False}, "on_misuse": arguments["on_misuse"]}}
    both = _Both(settings, 1)
    found: dict[str, Any] = {"raised": None}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            both.train_generator(frozen=False)
            both.generator.step()
            found["generator"] = moved(both.generator)
        except Exception as error:
            found["raised"] = f"{type(error).__name__}: {error}"
    found["warned"] = [str(warning.message) for warning in warned if "passes through" in str(warning.message)]
    return found | {"taken in": both.discriminator._accumulation.window.micro_batches}


class Recomputed(MeanOfValues):
    """The same, as a whole inside a reentrant checkpoint: its graph leads to none of its parameters."""

    def forward(self, values: Tensor, labels: Tensor) -> Tensor:
        outcome: Tensor = checkpoint(super().forward, values.requires_grad_(), labels, use_reentrant=True)
        return outcome


def other_gradients(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """`torch.autograd.grad` of the loss with respect to an input, before the backward; then a backward of its own."""
    engine = start("ours", **arguments["settings"])
    steps = []
    for values in ([1.0, 3.0], [4.0]):
        before, expected = moved(engine), parameters(engine).sum() / len(values)
        inputs = batch(values)
        inputs["values"].requires_grad_()
        loss = engine(**inputs)
        (asked,) = torch.autograd.grad(loss, inputs["values"], retain_graph=True)
        assert torch.allclose(asked.double(), expected), "the gradient that was asked for"
        if arguments["bare"]:
            try:
                loss.backward()
            except CountError as error:
                return {"raised": str(error), "taken in": engine._accumulation.window.micro_batches}
        engine.backward(loss)
        engine.step()
        steps.append(moved(engine) - before)
    return {"steps": steps, "tokens": engine.last_step.num_tokens}


def recomputed(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A bare backward of a loss below which no parameter can be seen is a backward of the engine's all the same."""
    engine = start("ours", model=Recomputed(), **arguments["settings"])
    engine(**batch([2.0, 4.0])).backward()
    engine.step()
    return {"moved": moved(engine)}
