"""What the ranks of `test_skipping.py` do: windows with a fault between windows without one, beside a twin that saw none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from tiny import config_of, parameters, sgd
from torch import Tensor, nn

Arguments = dict[str, Any]
ONE, OTHER, NONE = [1], [3], [-100]


class _GradientTimes(torch.autograd.Function):
    """The identity, with a gradient that is multiplied."""

    @staticmethod
    def forward(context: Any, inputs: Tensor, times: float) -> Tensor:
        context.times = times
        return inputs.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * context.times, None


class Classifier(nn.Module):
    """`forward(labels[N])` is the mean cross entropy of four classes whose logits are the parameters.

    `by_hand` divides by the number of labels that count, be it 0; `times` multiplies the loss, `gradient_times` only
    its gradient.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.5, 0.25, 0.0, -0.25]))

    def forward(
        self, labels: Tensor, *, by_hand: bool = False, times: float = 1.0, gradient_times: float = 1.0
    ) -> Tensor:
        logits = self.weight.expand(len(labels), -1)
        if gradient_times != 1.0:
            logits = _GradientTimes.apply(logits, gradient_times)
        logits = logits.float()
        if by_hand:
            loss = F.cross_entropy(logits, labels, reduction="sum") / (labels != -100).sum()
        else:
            loss = F.cross_entropy(logits, labels)
        return loss if times == 1.0 else loss * times


def _as_ever(_: int) -> dict[str, Any]:
    return {"labels": ONE}


def _another(_: int) -> dict[str, Any]:
    """The first of two: a window of one micro-batch is no window of two of the same."""
    return {"labels": OTHER}


NAN, INFINITY = float("nan"), float("inf")

FAULTS: dict[str, Callable[[int], dict[str, Any]]] = {
    # On rank 0 and on rank 1, in the second of two micro-batches.
    "nothing counted": lambda _: {"labels": NONE},
    "infinite loss on rank 1": lambda rank: {"labels": ONE, "times": INFINITY if rank else 1.0},
    "NaN loss on rank 0": lambda rank: {"labels": ONE, "times": 1.0 if rank else NAN},
    "mean over nothing by hand on rank 1": lambda rank: {"labels": NONE if rank else ONE, "by_hand": True},
    "NaN gradient on rank 1": lambda rank: {"labels": ONE, "gradient_times": NAN if rank else 1.0},
    "overflow": lambda _: {"labels": ONE, "gradient_times": 1e7},
}


class _Run:
    """An engine with momentum and a learning rate that falls with every step that is applied."""

    def __init__(self, arguments: Arguments) -> None:
        import ds_accum

        model = Classifier()
        if arguments["optimizer"] == "fused_adam":
            from deepspeed.ops.adam import FusedAdam

            optimizer: Any = FusedAdam(model.parameters(), lr=2**-4)
        elif arguments["optimizer"] == "cpu_adam":
            from deepspeed.ops.adam import DeepSpeedCPUAdam

            optimizer = DeepSpeedCPUAdam(model.parameters(), lr=2**-4)
        else:
            optimizer = sgd(model, 0.5, momentum=0.5)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
        config = config_of(accumulation=2, **arguments["settings"])
        self.engine, *_ = ds_accum.initialize(
            model=model, optimizer=optimizer, lr_scheduler=lambda _: scheduler, config=config
        )
        self.scheduler = scheduler

    def window(self, rank: int, second: Callable[[int], dict[str, Any]] = _as_ever, first: Any = _another) -> None:
        for made in (first, second):
            inputs = made(rank)
            self.engine.backward(self.engine(torch.tensor(inputs.pop("labels")), **inputs))
            self.engine.step()

    def held(self) -> list[float]:
        """Everything that a skipped step must leave alone: parameters, optimizer state, learning rate."""
        optimizer = self.engine.basic_optimizer
        state = [value for kept in optimizer.state.values() for value in kept.values() if isinstance(value, Tensor)]
        # ZeRO-3 lends its master parameters to the optimizer only while it steps.
        masters = getattr(self.engine.optimizer, "fp32_partitioned_groups_flat", None) or [
            parameter for group in optimizer.param_groups for parameter in group["params"]
        ]
        tensors = [tensor.detach().double().flatten() for tensor in (parameters(self.engine), *masters, *state)]
        return [*torch.cat(tensors).tolist(), float(self.scheduler.last_epoch)]

    def counters(self) -> tuple[int, int, float]:
        engine = self.engine
        return engine.global_steps, engine.skipped_steps, engine._accumulation.carrier.loss_scale()


def faults(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Each fault between two windows without one: what it left behind, and whether the next step was the twin's."""
    run, twin = _Run(arguments), _Run(arguments)
    run.window(rank)
    twin.window(rank)
    said: dict[str, Any] = {"optimizer": type(run.engine.optimizer).__name__}
    for name in arguments["faults"]:
        before, counters = run.held(), run.counters()
        everywhere = {"first": FAULTS[name]} if name == "nothing counted" else {}
        run.window(rank, FAULTS[name], **everywhere)
        steps, skipped, scale = (now - then for now, then in zip(run.counters(), counters, strict=True))
        report = run.engine.last_step
        untouched, counted = run.held() == before, (steps, skipped)
        run.window(rank)
        twin.window(rank)
        said[name] = {
            "because": report.skipped_because,
            "applied": report.applied,
            "norm": None if report.grad_norm is None else str(report.grad_norm),
            "untouched": untouched,
            "counted": counted,
            "loss scale times": (scale + counters[2]) / counters[2],
            "next is off by": max(abs(a - b) for a, b in zip(run.held(), twin.held(), strict=True)),
            "next is applied": run.engine.last_step.applied,
            "next moves": [now != then for now, then in zip(run.held(), before, strict=True)],
            "parameters": len(parameters(run.engine)),
        }
    return said


def empty_on_one_rank(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """torch's own mean over nothing on rank 1, twice: the step, beside that of one process on rank 0's labels alone."""
    run = _Run(arguments)
    start = parameters(run.engine)
    run.window(rank, *[lambda rank: {"labels": NONE if rank else ONE}] * 2)
    weight = start.clone().requires_grad_()
    F.cross_entropy(weight[None], torch.tensor(ONE)).backward()
    assert weight.grad is not None
    return {
        "off": float((parameters(run.engine) - (start - 0.5 * weight.grad)).abs().max()),
        "tokens": run.engine.last_step.num_tokens,
        "loss": run.engine.last_step.loss,
        "true loss": float(F.cross_entropy(start[None], torch.tensor(ONE))),
        "applied": run.engine.last_step.applied,
        "counted": run.counters()[:2],
    }


def raising(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """What a window with a fault raises on this rank, and whether training can go on after it."""
    run, twin = _Run(arguments), _Run(arguments)
    twin.window(rank)
    fault = FAULTS[arguments["fault"]]
    try:
        run.window(rank, fault, first=fault if arguments["fault"] == "nothing counted" else _another)
    except RuntimeError as error:
        raised = f"{type(error).__name__}: {error}"
    else:
        raised = "nothing"
    engine = run.engine
    skipped, micro_steps = engine.skipped_steps, engine.micro_steps
    reported = [engine.last_step.step, engine.last_step.micro_batches, engine.last_step.applied]
    run.window(rank)
    dist.barrier()
    return {
        "raised": raised,
        "skipped": skipped,
        "micro_steps": micro_steps,
        "reported": reported,
        "as the twin": run.held() == twin.held(),
    }


def unseen(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A NaN gradient under a finite loss, where nobody takes a norm."""
    from ds_accum.engine.banner import banner

    run = _Run(arguments)
    run.window(rank, FAULTS["NaN gradient on rank 1"])
    finite = bool(torch.isfinite(parameters(run.engine)).all())
    return {"finite": finite, "applied": run.engine.last_step.applied, "banner": banner(run.engine)}
