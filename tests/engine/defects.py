"""What the ranks of `test_deepspeed_bugs.py` do: each function runs on either engine, with the same training loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tiny import MeanOfValues, batch, config_of, moved, norm, parameters, sgd, start, train
from torch import Tensor, nn

Arguments = dict[str, Any]


def steps(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Micro-batches of one token with value 1, `count` of them: what each step moves, its norm, and the loss scale."""
    engine = start(arguments["engine"], **arguments["settings"])
    said: dict[str, list[Any]] = {"moved": [], "norms": []}
    for _ in range(arguments.get("count", 1)):
        said["moved"].append(train(engine, [1.0]))
        said["norms"].append(norm(engine))
    return said


def sparse_embedding(arguments: Arguments, rank: int, folder: Path) -> float:
    """How far a step moves the row of a sparse embedding that was looked up; its gradient is 1."""

    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(8, 4, sparse=True)
            self.dense = nn.Parameter(torch.ones(4))
            nn.init.zeros_(self.embedding.weight)

        def forward(self, ids: Tensor, **_: Tensor) -> Tensor:
            return (self.embedding(ids) * self.dense).sum()

    engine = start(arguments["engine"], model=Embedded(), **arguments["settings"])
    engine.backward(engine(ids=torch.tensor([3]), labels=torch.ones(1)))
    engine.step()
    return -float(engine.module.embedding.weight.detach()[3, 0])


def loss_and_logits(arguments: Arguments, rank: int, folder: Path) -> float:
    """How far `loss.backward()` moves a model that returns the loss and what it was made of: by 1."""

    class Both(MeanOfValues):
        def forward(self, values: Tensor, **_: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            logits = values * self.weight.sum()
            return logits.mean(), logits

    engine = start(arguments["engine"], model=Both(), **arguments["settings"])
    for _ in range(engine.gradient_accumulation_steps()):
        loss, _ = engine(**batch([1.0]))
        loss.backward()
        engine.step()
    return moved(engine)


def two_forwards_then_two_backwards(arguments: Arguments, rank: int, folder: Path) -> float:
    """How far micro-batches with values 1 and 10 move the parameters: by 5.5."""
    engine = start(arguments["engine"], **arguments["settings"])
    first, second = engine(**batch([1.0])), engine(**batch([10.0]))
    counted = {} if arguments["engine"] == "stock" else {"num_tokens": 1}
    for loss in (first, second):
        engine.backward(loss, **counted)
        engine.step()
    return moved(engine)


def backwards_without_sync(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Three micro-batches inside `no_sync` and one outside, then as many as DeepSpeed needs to find a boundary.

    How far each group of four has moved the parameters; every value is 1 on rank 0 and 2 on rank 1: by 1.5.
    """
    engine = start(arguments["engine"], **arguments["settings"])

    def backward() -> None:
        engine.backward(engine(**batch([1.0 + rank])))

    with engine.no_sync():
        for _ in range(3):
            backward()
    backward()
    engine.step()
    first = moved(engine)
    for _ in range(3):
        backward()
        engine.step()
    return {"after four": first, "after seven": moved(engine)}


def incomplete_window(arguments: Arguments, rank: int, folder: Path) -> list[float]:
    """Epochs of 5 and 8 micro-batches at 4 a window: what each micro-batch moves. The value is always 1."""
    engine = start(arguments["engine"], **arguments["settings"])
    said = [train(engine, [1.0]) for _ in range(4)]
    if arguments["engine"] == "stock":
        engine.set_gradient_accumulation_boundary(True)
        said.append(train(engine, [1.0]))
        engine._is_gradient_accumulation_boundary = None
    else:
        before = moved(engine)
        train(engine, [1.0])
        assert engine.flush()
        said.append(moved(engine) - before)
    return said + [train(engine, [1.0]) for _ in range(8)]


def resized_in_the_middle(arguments: Arguments, rank: int, folder: Path) -> list[float]:
    """From 4 micro-batches a window to 2, after 2 of them: what each micro-batch moves. The value is always 1."""
    engine = start(arguments["engine"], **arguments["settings"])
    said = []
    for index in range(8):
        if index == arguments["at"]:
            engine.set_train_batch_size(2 * 2)
        said.append(train(engine, [1.0]))
    return said


def unmanaged(arguments: Arguments, rank: int, folder: Path) -> float:
    """How far three micro-batches with value 1 move the parameters where the config says four a window: by 1."""
    engine = start(arguments["engine"], **arguments["settings"])
    for _ in range(3):
        engine.backward(engine(**batch([1.0])))
    engine.step()
    return moved(engine)


def round_robin(arguments: Arguments, rank: int, folder: Path) -> dict[str, float]:
    """Three steps on a model of several parameters: where they end, and how far DeepSpeed's own look at them is off."""
    from deepspeed.utils import safe_get_full_fp32_param

    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 4))
    engine = start(arguments["engine"], model=layers, optimizer=sgd(layers, 0.1), **arguments["settings"])
    counted = {} if arguments["engine"] == "stock" else {"num_tokens": 2}
    for _ in range(3):
        engine.backward(engine(torch.ones(2, 8) * (1 + rank)).pow(2).mean(), **counted)
        engine.step()
    held = parameters(engine)
    seen = (
        [safe_get_full_fp32_param(parameter) for parameter in engine.module.parameters()] if engine.zero_optimization()
        else list(engine.module.parameters())
    )  # fmt: skip
    looked_at = torch.cat([tensor.detach().double().flatten() for tensor in seen])
    return {"sum": float(held.sum()), "norm": float(held.norm()), "off": float((held - looked_at).abs().max())}


def first_adam_step(arguments: Arguments, rank: int, folder: Path) -> dict[str, float]:
    """The first update of Adam over its learning rate, which is 1, and how far weight decay moved the parameters before."""
    model = MeanOfValues()
    nn.init.ones_(model.weight)
    settings = {"lr": 2**-6, "weight_decay": 0.5, "eps": 1e-8}
    if arguments["optimizer"] == "fused_adam":
        from deepspeed.ops.adam import FusedAdam

        optimizer: Any = FusedAdam(model.parameters(), **settings)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), **settings)
    engine = start(arguments["engine"], model=model, optimizer=optimizer, **arguments["settings"])
    wrapper = engine.optimizer
    masters = wrapper.fp32_groups_flat if hasattr(wrapper, "fp32_groups_flat") else wrapper.fp32_groups[0]
    before = float(masters[0].flatten()[0])
    engine.backward(engine(**batch([1.0])))
    engine.step()
    after = float(masters[0].flatten()[0])
    decayed = before * (1 - settings["lr"] * settings["weight_decay"])
    return {"before": before, "update": (decayed - after) / settings["lr"]}


def overflows_under_autocast(arguments: Arguments, rank: int, folder: Path) -> int:
    """Steps of twelve that are skipped, from a scale at which the first one overflows."""
    engine = start(arguments["engine"], **arguments["settings"])
    for _ in range(12):
        train(engine, [1.0])
    return int(engine.skipped_steps)


def clips_a_pipeline(arguments: Arguments, rank: int, folder: Path) -> float:
    """The norm of the clipped gradient of a pipeline of two layers, one a rank; the config clips to 0.01."""
    import deepspeed
    import torch.distributed as dist
    from deepspeed.pipe import PipelineModule

    import ds_accum

    module = PipelineModule(
        [nn.Linear(4, 4, bias=False), nn.Linear(4, 1, bias=False)],
        num_stages=2,
        loss_fn=lambda output, target: (output - target).pow(2).mean(),
        partition_method="uniform",
    )
    for parameter in module.parameters():
        parameter.data.fill_(1.0 if rank == 0 else 0.01)
    initialize = deepspeed.initialize if arguments["engine"] == "stock" else ds_accum.initialize
    config = config_of(accumulation=2, **arguments["settings"])
    engine = initialize(model=module, optimizer=torch.optim.SGD(list(module.parameters()), lr=1.0), config=config)[0]
    before = parameters(engine)
    engine.train_batch(iter([(torch.ones(1, 4), torch.zeros(1, 1))] * 2))
    squares = (before - parameters(engine)).square().sum()
    dist.all_reduce(squares)
    return float(squares.sqrt())


def sequence_parallel_by_config(arguments: Arguments, rank: int, folder: Path) -> list[float]:
    """How far a step moves the parameters on each of two sequence parallel ranks, with values 1 and 3."""
    import torch.distributed as dist

    engine = start(arguments["engine"], **arguments["settings"])
    train(engine, [1.0 + 2 * rank])
    moves = torch.zeros(2)
    moves[rank] = moved(engine)
    dist.all_reduce(moves)
    return list(moves.tolist())


def empty_mean(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Two micro-batches, of which rank 1 counts nothing in the second and divides 0 by 0: what becomes of it."""
    engine = start(arguments["engine"], **arguments["settings"])
    train(engine, [1.0])
    train(engine, [None] if rank else [1.0])
    held = parameters(engine)
    return {"finite": bool(torch.isfinite(held).all()), "moved": moved(engine), "skipped": int(engine.skipped_steps)}
