"""What the ranks of `test_checkpointing.py` do: runs that are cut in two by a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tiny import parameters, start
from torch import Tensor, nn

Arguments = dict[str, Any]


class _FailingBackward(torch.autograd.Function):
    """The identity, whose backward fails."""

    @staticmethod
    def forward(_: Any, inputs: Tensor) -> Tensor:
        return inputs.clone()

    @staticmethod
    def backward(*_: Any) -> Tensor:
        raise ArithmeticError("this backward fails")


class Regression(nn.Module):
    """`forward(inputs[N, 8], labels[N])` is the mean squared output where labels are not -100."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, inputs: Tensor, labels: Tensor, *, fails: bool = False) -> Tensor:
        hidden = torch.tanh(self.first(inputs.to(self.first.weight.dtype)))
        if fails:
            # When the last layer has its gradient, and the first has none.
            hidden = _FailingBackward.apply(hidden)
        losses = self.last(hidden).flatten().float().square()
        return losses[labels != -100].mean()


# Counted tokens of both micro-batches of each window. After the second, the constant is exact, and no power of two.
_WINDOWS = ((3, 5), (3, 3), (5, 1), (2, 7))


def _engine(arguments: Arguments, engine: str = "ours") -> Any:
    model = Regression()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    # A window that is open is given up all the same where nobody wants to be told.
    block = {"counting": {"shift": False}, "on_misuse": "count", **arguments["settings"].get("block", {})}
    settings = {**arguments["settings"], "block": block}
    return start(engine, model=model, optimizer=optimizer, accumulation=2, **settings)


def _micro_batch(window: int, index: int, rank: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(100 * window + 10 * index + rank)
    labels = torch.full((8,), -100)
    labels[: _WINDOWS[window][index]] = 1
    return {"inputs": torch.randn(8, 8, generator=generator), "labels": labels}


def _train(engine: Any, windows: range, rank: int) -> list[float]:
    for window in windows:
        for index in range(2):
            engine.backward(engine(**_micro_batch(window, index, rank)))
            engine.step()
    return list(parameters(engine).tolist())


def resume(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Four windows at once, and two before a checkpoint and two after it in another engine."""
    whole = _train(_engine(arguments), range(4), rank)
    before = _engine(arguments)
    _train(before, range(2), rank)
    before.save_checkpoint(str(folder / "saved"), client_state={"epoch": 7})
    after = _engine(arguments)
    _train(after, range(1), rank)
    # Half a window, which is given up.
    after.backward(after(**_micro_batch(3, 0, rank)))
    after.step()
    _, client_state = after.load_checkpoint(str(folder / "saved"))
    constants = [engine._accumulation.next_constant for engine in (before, after)]
    return {
        "same": _train(after, range(2, 4), rank) == whole,
        "constants": constants,
        "epoch": client_state.get("epoch"),
        "ours in client_state": "ds_accum" in client_state,
        "steps": after.global_steps,
    }


def from_stock(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A checkpoint of stock DeepSpeed goes on in ours, and one of ours in stock DeepSpeed."""
    stock = _engine(arguments, "stock")
    trained = _train(stock, range(2), rank)
    stock.save_checkpoint(str(folder / "stock"))
    ours = _engine(arguments)
    _train(ours, range(1), rank)
    ours.load_checkpoint(str(folder / "stock"))
    loaded = list(parameters(ours).tolist())
    constant = ours._accumulation.next_constant
    trained_on = _train(ours, range(2, 4), rank)
    ours.save_checkpoint(str(folder / "ours"))
    back = _engine(arguments, "stock")
    back.load_checkpoint(str(folder / "ours"))
    return {
        "loaded": loaded == trained,
        "constant": constant,
        "goes on": ours.last_step.applied and trained_on != trained,
        "back": list(parameters(back).tolist()) == trained_on,
    }


def missing(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A folder without a checkpoint, inside a window and between two: beside a run that looks for none."""
    whole = _train(_engine(arguments), range(4), rank)
    engine = _engine(arguments)
    _train(engine, range(2), rank)
    constant = engine._accumulation.next_constant
    found = [engine.load_checkpoint(str(folder / "nothing"))]
    kept = engine._accumulation.next_constant == constant
    for window in (2, 3):
        engine.backward(engine(**_micro_batch(window, 0, rank)))
        engine.step()
        found.append(engine.load_checkpoint(str(folder / "nothing")))
        engine.backward(engine(**_micro_batch(window, 1, rank)))
        engine.step()
    same = list(parameters(engine).tolist()) == whole
    return {"found": found, "constant": kept, "same": same, "steps": engine.global_steps}


def after_a_failure(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A backward that fails half-way, a step after it, and a checkpoint that is loaded then: beside a run without a failure."""
    whole = _train(_engine(arguments), range(3), rank)
    engine = _engine(arguments)
    _train(engine, range(2), rank)
    engine.save_checkpoint(str(folder / "saved"))
    engine.backward(engine(**_micro_batch(2, 0, rank)))
    engine.step()
    raised = []
    loss = engine(**_micro_batch(2, 1, rank), fails=True)
    for call in (lambda: engine.backward(loss), engine.step):
        try:
            call()
        except Exception as error:
            raised.append(f"{type(error).__name__}: {error}")
    try:
        engine.load_checkpoint(str(folder / "saved"))
    except RuntimeError as error:
        return {"raised": raised, "loading": f"{type(error).__name__}: {error}"}
    return {"raised": raised, "same": _train(engine, range(2, 3), rank) == whole, "steps": engine.global_steps}
