"""What the ranks of `test_bare.py` do: `loss.backward()` of the model's loss, of what was made of it, and of something else."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import torch
from tiny import IGNORE_INDEX, batch, moved, raised, start
from torch import Tensor, nn

Arguments = dict[str, Any]


class Outputs(nn.Module):
    """`forward(values[N], labels[N])` gives the mean loss of the tokens, their losses, and a term of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))

    def forward(self, values: Tensor, labels: Tensor) -> dict[str, Tensor]:
        weight = self.weight.sum()
        losses = weight * values
        assert (labels != IGNORE_INDEX).all()
        return {"loss": losses.mean(), "losses": losses, "term": weight * 100.0}


def backward_of(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A bare backward of one thing; where it is refused, of the loss after it; then the step."""
    engine = start("ours", model=Outputs(), **arguments["settings"])
    output = engine(**batch([3.0, 5.0]))
    how = arguments["how"]
    if how == "the loss":
        refused = raised(output["loss"].backward)
    elif how == "twice the loss":
        refused = raised((output["loss"] * 2).backward)
    elif how == "twice a loss that is dropped":
        twice = output.pop("loss") * 2
        gc.collect()
        refused = raised(twice.backward)
    elif how == "twice":
        refused = raised(lambda: output["loss"].backward(retain_graph=True))
    elif how == "another output":
        refused = raised(lambda: output["term"].backward(retain_graph=True))
    elif how == "what the loss is made of":
        refused = raised(lambda: output["losses"].sum().backward(retain_graph=True))
    taken_in = engine._accumulation.window.micro_batches
    again = None
    if how in ("another output", "twice"):
        again = raised(lambda: output["loss"].backward(retain_graph=True))
    if how == "another output":
        engine.backward(output["loss"])
    return {
        "refused": refused,
        "taken in by then": taken_in,
        "again": again,
        "step": raised(engine.step),
        "moved": moved(engine),
        "tokens": getattr(engine.last_step, "num_tokens", None),
    }


class _Kept:
    """Something that a graph holds."""


class _Holding(torch.autograd.Function):
    """The identity, whose graph holds something."""

    kept: weakref.ref[_Kept]

    @staticmethod
    def forward(context: Any, inputs: Tensor) -> Tensor:
        context.kept = _Kept()
        _Holding.kept = weakref.ref(context.kept)
        return inputs.clone()

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return gradient


class _Holder(Outputs):
    def forward(self, values: Tensor, labels: Tensor) -> Tensor:  # type: ignore[override]
        return _Holding.apply(super().forward(values, labels)["loss"])  # type: ignore[no-any-return]


def dropped_output(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Whether the graph of a training forward lives while its output does, and after it was dropped."""
    said = {}
    for kind in ("stock", "ours"):
        engine = start(kind, model=_Holder(), **arguments["settings"])
        loss = engine(**batch([3.0]))
        before = _Holding.kept() is not None
        del loss
        gc.collect()
        said[kind] = [before, _Holding.kept() is not None]
    return said
