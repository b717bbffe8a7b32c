"""Print, as JSON, which values the optimizers and schedulers of the installed DeepSpeed and torch refuse, and when.

    DS_ACCELERATOR=cpu try_optimizer_values.py

Every parameter of every class is tried with every value of `VALUES`, the others left at their defaults (or at those of
`NEEDED`): {"AdamW": {"lr": {"start": [0, 1], "first step": []}}} says that the first two values are refused by the
constructor. It runs in a process of its own because importing DeepSpeed changes the process that does it, and because
the optimizers of the CPU are compiled first.
"""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from read_optimizer_signatures import DEEPSPEED_OPTIMIZERS, describe, signature_of

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 10, 0.5, 1.0, 1.5, -0.5),
    *("1e-3", "10", "auto", "", "cos", "min", "abs", "triangular"),
    *([], [0.9], [0.9, 0.999], [0, 0.999], [0.9, 1], [1.5, 0.9], [0.9, -0.1], [0.5, 1.2], [None, 0.001]),
    *(["0.9", "0.999"], [0.9, 0.999, 0.5], {}, {"a": 1}),
)

# What a scheduler can't be built without; with it, the parameter under test decides.
NEEDED: dict[str, dict[str, Any]] = {
    "OneCycle": {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1},
    "WarmupDecayLR": {"total_num_steps": 10},
    "WarmupCosineLR": {"total_num_steps": 10},
    "StepLR": {"step_size": 1},
    "MultiStepLR": {"milestones": [1]},
    "ExponentialLR": {"gamma": 0.9},
    "CosineAnnealingLR": {"T_max": 4},
    "CosineAnnealingWarmRestarts": {"T_0": 2},
    "CyclicLR": {"base_lr": 0.01, "max_lr": 0.1, "cycle_momentum": False},
    # Either this, or epochs and steps_per_epoch.
    "OneCycleLR": {"max_lr": 0.1, "total_steps": 10},
}

# Schedulers that no config can build: they want functions, or other schedulers.
NOT_FROM_A_FILE = ("LambdaLR", "MultiplicativeLR", "ChainedScheduler", "SequentialLR", "LRScheduler", "_LRScheduler")


class _Kernel:
    """In place of a CUDA kernel, which a constructor loads but does not run."""

    def load(self) -> _Kernel:
        return self

    def __getattr__(self, name: str) -> None:
        return None


def _parameter() -> Any:
    import torch

    weight = torch.nn.Parameter(torch.ones(4, 4))
    weight.grad = torch.ones(4, 4)
    return weight


def _refusal(build: Any, step: Any) -> str | None:
    """When a value is refused; None if it is not, or if only training would show it."""
    try:
        built = build()
    except Exception:
        return "start"
    try:
        step(built)
    except Exception:
        return "first step"
    return None


def _try_all(constructor: type, needed: dict[str, Any], build: Any, step: Any) -> dict[str, dict[str, list[int]]]:
    signature = signature_of(constructor)
    found = {}
    for parameter in (*signature["required"], *signature["optional"]):
        refused: dict[str, list[int]] = {"start": [], "first step": []}
        for number, value in enumerate(VALUES):
            arguments = {**needed, parameter: value}
            moment = _refusal(lambda arguments=arguments: build(copy.deepcopy(arguments)), step)
            if moment is not None:
                refused[moment].append(number)
        found[parameter] = refused
    return found


def try_optimizers() -> dict[str, Any]:
    torch_optim = importlib.import_module("torch.optim")
    # DeepSpeed's optimizers of the CPU ask it anew for every object, which takes a second.
    cpuinfo = importlib.import_module("cpuinfo")
    cpuinfo.get_cpu_info = functools.cache(cpuinfo.get_cpu_info)
    for module, builder in (("lamb.fused_lamb", "FusedLambBuilder"), ("lion.fused_lion", "FusedLionBuilder")):
        setattr(importlib.import_module(f"deepspeed.ops.{module}"), builder, _Kernel)
    known = describe()
    constructors = {name: getattr(torch_optim, name) for name in known["torch_optimizers"] if name != "Optimizer"}
    constructors |= {
        name: getattr(importlib.import_module(where), name) for name, where in DEEPSPEED_OPTIMIZERS.items()
    }
    found = {}
    for name, constructor in constructors.items():

        def step(optimizer: Any) -> None:
            if type(optimizer).__name__ in ("FusedLamb", "FusedLion", "SparseAdam", "LBFGS"):
                return  # these need a GPU, sparse gradients or a closure
            positional = [1] if "step_id" in inspect.signature(optimizer.step).parameters else []
            optimizer.step(*positional)

        found[name] = _try_all(
            constructor, {}, lambda arguments, constructor=constructor: constructor([_parameter()], **arguments), step
        )
    return found


def try_schedulers() -> dict[str, Any]:
    import torch

    own = importlib.import_module("deepspeed.runtime.lr_schedules")
    known = describe()
    found = {}
    for name in (*known["schedulers"], *known["torch_schedulers"]):
        if name in NOT_FROM_A_FILE:
            continue
        constructor = getattr(own, name, None) or getattr(torch.optim.lr_scheduler, name)

        def build(arguments: dict[str, Any], constructor: type = constructor) -> Any:
            optimizer = torch.optim.AdamW([_parameter()], lr=0.1)
            return constructor(optimizer, **arguments), optimizer

        def step(built: Any) -> None:
            scheduler, optimizer = built
            optimizer.step()
            # As the engine does (`_take_model_step`): a TypeError gets a second try with the batch size.
            try:
                scheduler.step()
            except TypeError:
                scheduler.step(8)

        found[name] = _try_all(constructor, NEEDED.get(name, {}), build, step)
    return found


if __name__ == "__main__":
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    print("\n" + json.dumps({**try_optimizers(), **try_schedulers()}))
