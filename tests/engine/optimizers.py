"""The optimizers of the runs by name: as a training script builds them, and in float64 for the truth.

Adam's epsilon is about as large as the gradients here: with the usual one, its step is the same whatever constant the
gradient is multiplied by, and no test of a factor could fail.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

SGD = {"lr": 0.5, "momentum": 0.9}
ADAM = {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-3, "weight_decay": 0.01}
LION = {"lr": 0.003, "betas": (0.9, 0.99), "weight_decay": 0.01}
MUON = {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.01}


class _Lion(torch.optim.Optimizer):
    """Lion as in https://doi.org/10.48550/arXiv.2302.06675, algorithm 2.

    DeepSpeed's takes the sign bit, so that the sign of 0 is 1 (`copysign`, csrc/lion/cpu_lion_impl.cpp).
    """

    def __init__(self, parameters: Iterable[nn.Parameter], *, sign_bit: bool = False) -> None:
        super().__init__(parameters, dict(LION))
        self.sign = (lambda values: torch.copysign(torch.ones_like(values), values)) if sign_bit else torch.sign

    @torch.no_grad()
    def step(self, _: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
                first, second = group["betas"]
                direction = self.sign(first * momentum + (1 - first) * parameter.grad)
                parameter.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * direction)
                momentum.mul_(second).add_((1 - second) * parameter.grad)


def optimizer_of(name: str, model: nn.Module) -> Any:
    """The optimizer that a training script passes to `initialize`."""
    parameters = list(model.parameters())
    match name:
        case "sgd":
            return torch.optim.SGD(parameters, **SGD)
        case "sgd in two groups":
            return torch.optim.SGD([{"params": parameters[:3]}, {"params": parameters[3:]}], **SGD)
        case "adamw":
            return torch.optim.AdamW(parameters, **ADAM)
        case "fused_adam":
            from deepspeed.ops.adam import FusedAdam

            return FusedAdam(parameters, **ADAM)
        case "cpu_adam":
            from deepspeed.ops.adam import DeepSpeedCPUAdam

            return DeepSpeedCPUAdam(parameters, **ADAM)
        case "cpu_lion":
            from deepspeed.ops.lion import DeepSpeedCPULion

            return DeepSpeedCPULion(parameters, **LION)
        case "torch_lion":
            return _Lion(parameters)
        case "muon":
            return _muon(model)
    raise ValueError(f"there is no optimizer {name!r} here")


def true_optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """The same algorithm, by torch or in the few lines above; Muon by DeepSpeed, which has it for whole matrices, too."""
    parameters = list(model.parameters())
    if name == "sgd":
        return torch.optim.SGD(parameters, **SGD)
    if name == "muon":
        return _muon(model)
    if name.endswith("lion"):
        return _Lion(parameters, sign_bit=name == "cpu_lion")
    return torch.optim.AdamW(parameters, **ADAM)


def _muon(model: nn.Module) -> Any:
    """Muon for the matrices, Adam for the rest, as `deepspeed.initialize` builds it from a config."""
    from deepspeed.runtime.zero.muon.muon_optimizer import MuonWithAuxAdam

    # It compiles its iterations, which takes each rank a minute.
    torch._dynamo.config.disable = True
    halves: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for name, parameter in model.named_parameters():
        parameter.use_muon = parameter.ndim == 2 and "embed" not in name  # type: ignore[attr-defined]
        halves[parameter.use_muon].append(parameter)  # type: ignore[attr-defined]
    return MuonWithAuxAdam(
        [{"params": halves[True], "use_muon": True, **MUON}, {"params": halves[False], "use_muon": False, **ADAM}]
    )
