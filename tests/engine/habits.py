"""What the ranks of `test_habits.py` do: what training loops are used to, beside forward, backward and step."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from skips import _GradientTimes
from tiny import MeanOfValues, batch, moved, parameters, raised, sgd, start, train
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ds_accum.engine.banner import banner

Arguments = dict[str, Any]


def hook_on_the_loss(arguments: Arguments, rank: int, folder: Path) -> dict[str, float]:
    """A hook that triples the gradient of the loss, stock DeepSpeed and ours, in the first window and a later one."""
    found = {}
    for kind in ("stock", "ours"):
        engine = start(kind, **arguments["settings"])
        for _ in range(2):
            loss = engine(**batch([1.0, 3.0]))
            loss.register_hook(lambda gradient: 3 * gradient)
            engine.backward(loss)
            engine.step()
        found[kind] = moved(engine)
    return found


def forward_ahead(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """The forward of the next micro-batch comes before the step of the last; and one that is never propagated."""
    engine = start("ours", accumulation=2, **arguments["settings"])
    loss = engine(**batch([2.0]))
    for values in ([4.0, 4.0, 1.0], [1.0], [5.0], None):
        engine.backward(loss)
        loss = engine(**batch(values)) if values else loss
        engine.step()
    engine(**batch([9.0]))  # nobody holds its loss
    engine.flush()
    train(engine, [1.0])
    train(engine, [1.0])
    return {"moved": moved(engine), "tokens": engine.last_step.num_tokens}


def destroyed(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A model and its optimizer, trained by an engine, then by another one, and then by hand."""
    model = MeanOfValues()
    optimizer = sgd(model)
    before = set(vars(optimizer))
    found: dict[str, Any] = {"steps": []}
    stage = arguments["settings"]["stage"]
    for _ in range(2):
        engine = start("ours", model=model, optimizer=optimizer, **arguments["settings"])
        found["steps"].append(train(engine, [2.0]))
        engine.destroy()
        if stage:
            model = MeanOfValues()
            optimizer.param_groups[0]["params"] = list(model.parameters())
    if not stage:
        found["left behind"] = sorted(set(vars(optimizer)) - before)
        model.zero_grad()
        model(**batch([2.0])).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1000.0)
        optimizer.step()
        found["by hand"] = -float(model.weight[0].detach())
    return found


def adagrad(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """DeepSpeed's ZeRO puts another Adagrad into the place of the one that it is given."""
    model = MeanOfValues()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.5)
    engine = start("ours", model=model, optimizer=optimizer, **arguments["settings"])
    steps = [train(engine, [2.0]) for _ in range(2)]
    return {"steps": steps, "past": raised(getattr(engine.optimizer, "optimizer", engine.optimizer).step)}


def declared_too_much(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A window that Muon's engine can't apply: nothing brings it back but a checkpoint, which gives it up."""
    import deepspeed

    import ds_accum

    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    for parameter in model.parameters():
        parameter.use_muon = parameter.ndim >= 2  # type: ignore[attr-defined]
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 2, "reduce_bucket_size": 100_000},
        "optimizer": {"type": "Muon", "params": {"lr": 0.02, "momentum": 0.9}},
        "gradient_clipping": 0.0,
    }
    engine, *_ = ds_accum.initialize(model=model, model_parameters=model.parameters(), config=config)
    engine.save_checkpoint(str(folder / "saved"), tag="start")
    deepspeed.comm.barrier()
    start_of_it = parameters(engine)

    def window(declared: int, came: int) -> None:
        engine.begin_window(declared)
        engine.backward(engine(torch.ones(came, 4)).mean(), num_tokens=came)
        engine.step()

    said = [raised(lambda: window(5, 6)), raised(engine.step), raised(lambda: engine.backward(torch.zeros(())))]
    path, _ = engine.load_checkpoint(str(folder / "saved"), tag="start")
    again = bool(torch.equal(start_of_it, parameters(engine)))
    window(6, 6)
    return {"said": said, "loaded": path is not None, "as it was": again, "tokens": engine.last_step.num_tokens}


class _OfMask(MeanOfValues):
    """The mean over the places of a mask, of which there may be more than labels."""

    def forward(self, values: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        losses = F.linear(values[:, None].expand(-1, 4), self.weight[None]).flatten()
        return (losses * mask).sum() / mask.sum().clamp(min=1) + 0 * labels.sum()


def masked(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Six places in the mask and two labels; then a count above the places."""
    block = {"counting": {"loss_mask": "mask"}}
    engine = start("ours", model=_OfMask(), block=block, **arguments["settings"])
    inputs = {"values": torch.full((6,), 3.0), "labels": torch.ones(2), "mask": torch.ones(6)}
    engine.backward(engine(**inputs), num_tokens=6)
    engine.step()
    loss = engine(**inputs)
    return {"moved": moved(engine), "above": raised(lambda: engine.backward(loss, num_tokens=7))}


def sizes(arguments: Arguments, rank: int, folder: Path) -> list[str]:
    engine = start("ours", **arguments["settings"])
    wrong = (0, -8, 8.0, True)
    calls = (engine.set_train_batch_size, engine.set_train_micro_batch_size)
    return [raised(lambda call=call, size=size: call(size)) for call in calls for size in wrong]


def unseen_norm(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """The banner, and what becomes of a gradient that is no number under a loss that is finite."""

    class Broken(MeanOfValues):
        def forward(self, values: Tensor, labels: Tensor) -> Tensor:
            return _GradientTimes.apply(super().forward(values, labels), float("nan"))  # type: ignore[no-any-return]

    engine = start("ours", model=Broken(), **arguments["settings"])
    train(engine, [2.0])
    return {"banner": banner(engine), "finite": bool(parameters(engine).isfinite().all())}


def steps_left_out(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Backwards by the number, then one step: a loop of plain PyTorch's. `never`: without any."""
    engine = start("ours", accumulation=4, **arguments["settings"])
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(2):
            for _ in range(4):
                engine.backward(engine(**batch([2.0])))
            if not arguments["never"]:
                engine.step()
        if arguments["never"]:
            engine.backward(engine(**batch([2.0])))
    return {"warned": [f"{w.category.__name__}: {w.message}" for w in warned if "engine.step()" in str(w.message)]}


def several_losses(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Two losses of a micro-batch, each with a count of its own, and a step: two backwards are no four."""
    engine = start("ours", accumulation=4, **arguments["settings"])
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(4):
            engine.backward(engine(**batch([2.0])))
            engine.backward(engine(**batch([4.0])))
            engine.step()
    said = [str(warning.message) for warning in warned if "engine.step()" in str(warning.message)]
    return {"warned": said, "moved": moved(engine), "tokens": engine.last_step.num_tokens}


def noise(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A model that fails by itself, with words in its message that a lost connection has."""
    import time

    class Failing(MeanOfValues):
        def forward(self, values: Tensor, labels: Tensor) -> Tensor:
            tokens = (values.numel(), labels.numel())
            raise RuntimeError(f"timed out while waiting for the peer of skip_connection with {tokens}")

    engine = start("ours", model=Failing(), **arguments["settings"])
    began = time.monotonic()
    return {"raised": raised(lambda: engine(**batch([1.0]))), "seconds": time.monotonic() - began}


class _Entropy(nn.Module):
    """The cross entropy of torch's over labels, in one of several ways; `forward(inputs[N, 4], labels[N])`."""

    def __init__(self, way: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.way = nn.Linear(4, 3), way

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        inputs = inputs.to(self.linear.weight.dtype)
        if self.way == "recomputed":
            loss: Tensor = checkpoint(self._loss, inputs.requires_grad_(), labels, use_reentrant=True)
            return loss
        loss = self._loss(inputs, labels)
        if self.way == "by hand":
            # 0 / 0 reaches every place.
            counted = (labels >= 0).float()
            losses = F.cross_entropy(self.linear(inputs).float(), labels.clamp(min=0), reduction="none")
            return (losses * counted).sum() / counted.sum()
        # Terms beside it weigh what its tokens do; this one is 0, so that all ways are the same.
        return loss + 0.5 * (self.linear.weight * 0).sum() if self.way == "beside a term" else loss

    def _loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.linear(inputs).float(), labels)


def empty_among(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """One micro-batch of three has no counted token on rank 1, its loss is NaN."""
    way = arguments["way"]
    engine = start("ours", model=_Entropy(way), accumulation=3, **arguments["settings"])
    if way == "compiled":
        engine.compile(backend="aot_eager")
    scale = engine._accumulation.carrier.loss_scale()
    generator = torch.Generator().manual_seed(rank)
    for micro_batch in range(3):
        inputs = torch.randn(2 + micro_batch, 4, generator=generator)
        labels = torch.full((len(inputs),), -100 if rank and micro_batch == 1 else 1)
        engine.backward(engine(inputs, labels))
        engine.step()
    report = engine.last_step
    return {
        "applied": report.applied,
        "skipped because": report.skipped_because,
        "parameters": parameters(engine).tolist(),
        "scale is kept": engine._accumulation.carrier.loss_scale() == scale,
    }


class _Clamped(MeanOfValues):
    """A mean over no token is 0, and so is its gradient."""

    def forward(self, values: Tensor, labels: Tensor) -> Tensor:
        losses = F.linear(values.to(self.weight.dtype)[:, None].expand(-1, 4), self.weight[None]).flatten().float()
        counted = (labels > 0).float()
        return (losses * counted).sum() / counted.sum().clamp(min=1)


def exceptional_first(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """float16: the first micro-batch of each window has few tokens or none, the others have many."""
    scale = arguments["scale"]
    fp16 = {"enabled": True, "loss_scale": scale} if scale else {"enabled": True, "initial_scale_power": 15}
    engine = start("ours", model=_Clamped(), dtype="fp16", accumulation=4, fp16=fp16, **arguments["settings"])
    applied = []
    for _ in range(6):
        for count in (arguments["first"], 4000, 4000, 4000):
            # None is a token that does not count.
            engine.backward(engine(**batch([1 / 1024] * count or [None])))
            engine.step()
        applied.append(engine.last_step.applied)
    return {"applied": applied, "moved": moved(engine)}
