"""What the ranks of `test_edges.py` do: training loops at the edge of what an engine understands."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tiny import MeanOfValues, batch, moved, parameters, raised, sgd, start, train
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Arguments = dict[str, Any]


def _micro_batches(engine: Any) -> int:
    return engine._accumulation.window.micro_batches


# --- counts -----------------------------------------------------------------------------------------------------------


def counts_that_are_missing_or_wrong(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Each mistake is refused before anything is accumulated, and the loss can still be propagated back with its count.

    The window then has the values 1, 2, 3 and 6: their mean is 3.
    """
    engine = start("ours", accumulation=2, **arguments["settings"])
    said: dict[str, Any] = {"raised": []}

    def refused(call: Callable[[], Any]) -> None:
        said["raised"].append(raised(call))

    first, second = engine(**batch([1.0, 2.0, 3.0])), engine(**batch([9.0]))
    refused(lambda: engine.backward(second))
    for wrong in (-1, float("nan"), torch.tensor([1, 2]), "3"):
        refused(lambda wrong=wrong: engine.backward(first, num_tokens=wrong))
    refused(lambda: engine.backward(first, num_tokens=3, scale_wrt_gas=False))
    said["taken in by then"] = _micro_batches(engine)
    engine.backward(first, num_tokens=3)
    engine.step()
    refused(lambda: engine.backward(second))
    train(engine, [6.0])
    return said | {"moved": moved(engine), "tokens": engine.last_step.num_tokens}


def counts_from_nowhere(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A model whose labels are not found: the first backward says so; with a count given it goes on."""
    engine = start("ours", **arguments["settings"])
    loss = engine(**batch([4.0]))
    said = raised(lambda: engine.backward(loss))
    taken_in = _micro_batches(engine)
    engine.backward(loss, num_tokens=1)
    engine.step()
    return {"raised": said, "taken in by then": taken_in, "moved": moved(engine)}


def bare_backward(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """`loss.backward()` of a loss that is not the model's output, after no count, or where there is no such backward."""
    engine = start("ours", **arguments["settings"])
    loss = engine(**batch([4.0]))
    if arguments["how"] == "two forwards":
        engine(**batch([4.0]))
    elif arguments["how"] == "logits":

        class Logits(MeanOfValues):
            def forward(self, values: Tensor, **_: Tensor) -> Tensor:  # type: ignore[override]
                return self.weight.sum() * values

        engine = start("ours", model=Logits(), **arguments["settings"])
        loss = engine(**batch([4.0, 4.0])).mean()
    said = raised(loss.backward)
    return {"raised": said, "taken in by then": _micro_batches(engine)}


def evaluation(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Forwards in evaluation and without gradients, before and inside a window: none leaves a count."""
    engine = start("ours", accumulation=2, **arguments["settings"])

    def evaluate() -> None:
        engine.eval()
        engine(**batch([50.0]))
        engine.train()
        with torch.no_grad():
            engine(**batch([50.0]))

    evaluate()
    train(engine, [1.0, 2.0, 3.0])
    evaluate()
    loss = engine(**batch([6.0]))
    evaluate()
    engine.backward(loss)
    engine.step()
    return {"moved": moved(engine), "tokens": engine.last_step.num_tokens}


def num_items_in_batch(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A model that divides its sum by what the caller says the whole step holds, as Hugging Face's do; ours is exact.

    The caller is wrong here, and the step is right all the same: values 1, 2, 3 on rank 0, 10 on rank 1.
    """

    class Divided(MeanOfValues):
        def forward(self, values: Tensor, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:  # type: ignore[override]
            mean = super().forward(values, labels)
            return mean if num_items_in_batch is None else mean * (labels != -100).sum() / num_items_in_batch

    engine = start("ours", model=Divided(), **arguments["settings"])
    values = batch([10.0] if rank else [1.0, 2.0, 3.0])
    loss = engine(**values, num_items_in_batch=17)
    said = {"changed": raised(lambda: engine.backward(loss * 1.0))}
    engine.backward(loss, scale_wrt_gas=False)
    engine.step()
    return said | {"moved": moved(engine), "tokens": engine.last_step.num_tokens}


# --- losses -----------------------------------------------------------------------------------------------------------


def half_precision(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A model that returns its loss in 16 bits: the warnings of three steps, and what `backward` returns in a fourth."""

    class Half(MeanOfValues):
        def forward(self, values: Tensor, labels: Tensor) -> Tensor:
            return super().forward(values, labels).bfloat16()

    engine = start("ours", model=Half(), **arguments["settings"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            train(engine, [1.0, 2.0, 6.0])
    said = {"warnings": [str(one.message) for one in caught if "scalar" in str(one.message)], "moved": moved(engine)}
    returned = engine.backward(engine(**batch([2.0])))
    engine.step()
    return said | {"returned": str(returned.dtype)}


def sums(arguments: Arguments, rank: int, folder: Path) -> float:
    """Losses that are sums, one of them handed over with `scale_wrt_gas=False`: values 1, 2, 3 and 6."""

    class Sum(MeanOfValues):
        def forward(self, values: Tensor, labels: Tensor) -> Tensor:
            return super().forward(values, labels) * (labels != -100).sum()

    block = {"counting": {"shift": False}, "loss_reduction": "sum"}
    engine = start("ours", model=Sum(), accumulation=2, block=block, **arguments["settings"])
    train(engine, [1.0, 2.0, 3.0])
    engine.backward(engine(**batch([6.0])), scale_wrt_gas=False)
    engine.step()
    return moved(engine)


def auxiliary_loss(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A term of the micro-batch beside the mean over its tokens: it is weighed by the tokens of its micro-batch."""
    engine = start("ours", accumulation=2, **arguments["settings"])
    auxiliary = {0: (8.0, 2.0), 1: (4.0, 6.0)}[rank]
    for values, more in zip(([1.0, 2.0, 3.0], [6.0]), auxiliary, strict=True):
        main = engine(**batch(values))
        # The same parameters, in a loss of its own: gradient 1 for each.
        weight = engine.module.weight
        engine.backward(main + more * weight.sum() if weight.numel() else main)
        engine.step()
    return {"moved": moved(engine)}


def adversarial(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Two engines, two losses: a discriminator with two forwards for a backward, and a generator through its module."""
    generator_model, discriminator_model = MeanOfValues(), MeanOfValues()
    generator = start("ours", model=generator_model, optimizer=sgd(generator_model), **arguments["settings"])
    discriminator = start(
        "ours", model=discriminator_model, optimizer=sgd(discriminator_model), **arguments["settings"]
    )
    real, fake = discriminator(**batch([1.0])), discriminator(**batch([3.0]))
    without = raised(lambda: discriminator.backward(real + fake))
    discriminator.backward(real + fake, num_tokens=2)
    discriminator.step()
    made = generator(**batch([2.0]))
    generator.backward(made * 3.0, num_tokens=1)
    generator.step()
    return {"without": without, "discriminator": moved(discriminator), "generator": moved(generator)}


def retained_graph(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """The same loss propagated back twice, as two micro-batches: a mean of itself."""
    engine = start("ours", accumulation=2, **arguments["settings"])
    loss = engine(**batch([2.0, 4.0]))
    engine.backward(loss, retain_graph=True)
    engine.step()
    engine.backward(loss, num_tokens=2)
    engine.step()
    return {"moved": moved(engine), "tokens": engine.last_step.num_tokens}


# --- models -----------------------------------------------------------------------------------------------------------


class _Layers(nn.Module):
    """Two layers with a non-linearity, recomputed in the backward if asked to. `forward(inputs[N, 8], labels[N])`."""

    def __init__(self, recomputed: bool | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.last = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 1)
        self.recomputed = recomputed

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        if self.recomputed is None:
            hidden = self._hidden(inputs)
        else:
            # Without an input that has a gradient, reentrant checkpoints have none to give.
            hidden = checkpoint(self._hidden, inputs.requires_grad_(), use_reentrant=self.recomputed)
        losses = self.last(hidden).flatten().float().square()
        counted = labels != -100
        return losses[counted].mean()

    def _hidden(self, inputs: Tensor) -> Tensor:
        return torch.tanh(self.second(torch.tanh(self.first(inputs))))


def _trained(engine: Any, rank: int, steps: int = 2) -> list[float]:
    generator = torch.Generator().manual_seed(rank)
    for _ in range(steps * engine.gradient_accumulation_steps()):
        inputs = torch.randn(4, 8, generator=generator)
        labels = torch.where(torch.rand(4, generator=generator) < 0.5, 1, -100)
        labels[0] = 1
        engine.backward(engine(inputs, labels=labels))
        engine.step()
    return list(parameters(engine).tolist())


def layers(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Parameters of a model after two steps: plain, recomputed, or compiled, as the arguments say."""
    model = _Layers(arguments.get("recomputed"))
    engine = start("ours", model=model, optimizer=sgd(model, 0.1), accumulation=2, **arguments["settings"])
    if "compiled" in arguments:
        engine.compile(backend=arguments["compiled"])
    trained = _trained(engine, rank)
    return {"parameters": trained, "compiled": bool(getattr(engine, "is_compiled", False))}


# --- windows ----------------------------------------------------------------------------------------------------------


def look_ahead(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Windows declared rightly, wrongly, in the middle and twice."""
    engine = start("ours", accumulation=2, **arguments["settings"])
    said: dict[str, Any] = {"warnings": [], "moved": []}
    for declared in (4, 5):
        engine.begin_window(declared)
        twice = raised(lambda: engine.begin_window(4))
        before = moved(engine)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            train(engine, [1.0, 2.0, 3.0])
            middle = raised(lambda: engine.begin_window(4))
            train(engine, [6.0])
        said["moved"].append(moved(engine) - before)
        said["warnings"] += [str(one.message) for one in caught if "begin_window" in str(one.message)]
    return said | {"twice": twice, "middle": middle}


def flushes(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A flush of nothing, of a part of a window, and of nothing again."""
    engine = start("ours", accumulation=4, **arguments["settings"])
    said = {"nothing": engine.flush()}
    train(engine, [1.0])
    train(engine, [3.0])
    said |= {"part": engine.flush(), "moved": moved(engine), "nothing again": engine.flush()}
    return said | {"steps": engine.global_steps, "reductions": engine.last_step.events.reductions}


def uneven_flush(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Rank 1 has one micro-batch less than rank 0."""
    engine = start("ours", accumulation=4, **arguments["settings"])
    for _ in range(2 - rank):
        train(engine, [1.0])
    return {"raised": raised(engine.flush), "moved": moved(engine)}


def reduced_at_the_boundary(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Two windows of three micro-batches, and one of two that is flushed, reduced once each: what each moved."""
    model = MeanOfValues()
    block = {"counting": {"shift": False}, "reduction": "boundary"}
    engine = start("ours", model=model, accumulation=3, block=block, **arguments["settings"])
    said: dict[str, Any] = {"moved": [], "reductions": [], "norms": []}

    def note(before: float) -> None:
        said["moved"].append(moved(engine) - before)
        said["reductions"].append(engine.last_step.events.reductions)
        said["norms"].append(engine.last_step.grad_norm)

    values = ([1.0, 2.0, 3.0], [6.0 + 4 * rank], [2.0])
    for _ in range(2):
        before = moved(engine)
        for one in values:
            train(engine, one)
        note(before)
    before = moved(engine)
    for one in values[:2]:
        train(engine, one)
    engine.flush()
    note(before)
    return said
