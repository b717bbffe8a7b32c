"""A model of four parameters whose gradient can be told by hand, and engines for it.

loss of a token = value x (w1 + w2 + w3 + w4)        gradient of a mean = the mean of the values, four times
with SGD and a learning rate of 1, a step moves each parameter by that mean; the norm is twice that
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import deepspeed
import torch
import torch.nn.functional as F
from torch import Tensor, nn

IGNORE_INDEX = -100


class MeanOfValues(nn.Module):
    """`forward(values[N], labels[N])` is the mean loss of the tokens whose label is not -100, a float32 scalar."""

    def __init__(self) -> None:
        super().__init__()
        # What training changes is then exact in 16 bits, too.
        self.weight = nn.Parameter(torch.zeros(4))

    def forward(self, values: Tensor, labels: Tensor) -> Tensor:
        inputs = values.to(self.weight.dtype)[:, None].expand(-1, 4)
        losses = F.linear(inputs, self.weight[None]).flatten().float()
        counted = (labels != IGNORE_INDEX).float()
        # By hand, so that a mean over nothing is 0 / 0.
        return (losses * counted).sum() / counted.sum()


def batch(values: Sequence[float | None]) -> dict[str, Tensor]:
    """One token for each value; None is a token that does not count."""
    return {
        "values": torch.tensor([0.0 if value is None else value for value in values]),
        "labels": torch.tensor([IGNORE_INDEX if value is None else 1 for value in values]),
    }


def sgd(model: nn.Module, learning_rate: float = 1.0, momentum: float = 0.0) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=momentum)


def config_of(
    *,
    stage: int = 0,
    dtype: str = "fp32",
    accumulation: int = 1,
    clipping: float = 0.0,
    zero: Mapping[str, Any] | None = None,
    block: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """DeepSpeed's config for these engines; labels are counted as they are unless `block` says otherwise."""
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": clipping,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {
            "stage": stage,
            "reduce_bucket_size": 100_000,
            "allgather_bucket_size": 100_000,
            "stage3_param_persistence_threshold": 0,
            **(zero or {}),
        },
        "ds_accum": {"counting": {"shift": False}} if block is None else block,
        **more,
    }
    if dtype != "fp32":
        config.setdefault(dtype, {"enabled": True})
    return config


def start(
    engine: str,
    *,
    model: nn.Module | None = None,
    optimizer: Any = None,
    mpu: Any = None,
    **settings: Any,
) -> Any:
    """An engine, stock DeepSpeed's or ours, for MeanOfValues and SGD unless others are given."""
    import ds_accum

    model = model or MeanOfValues()
    initialize = deepspeed.initialize if engine == "stock" else ds_accum.initialize
    return initialize(model=model, optimizer=optimizer or sgd(model), config=config_of(**settings), mpu=mpu)[0]


def train(engine: Any, values: Sequence[float | None]) -> float:
    """Forward, backward and step of one micro-batch; how far it moved the parameters, which is the same for each."""
    before = moved(engine)
    engine.backward(engine(**batch(values)))
    engine.step()
    return moved(engine) - before


def moved(engine: Any) -> float:
    """How far the first parameter has moved since the start, against its gradient."""
    return -float(parameters(engine)[0])


def parameters(engine: Any) -> Tensor:
    """All of the module's parameters, whole, in float64: [P]. All ranks call it."""
    held = list(engine.module.parameters())
    with whole(held):
        return torch.cat([parameter.detach().double().flatten() for parameter in held])


@contextmanager
def whole(held: list[nn.Parameter]) -> Iterator[None]:
    """ZeRO-3's parameters, gathered; others as they are."""
    with deepspeed.zero.GatheredParameters(held, enabled=hasattr(held[0], "ds_id")):
        yield


def norm(engine: Any) -> float | None:
    found = engine.get_global_grad_norm()
    return None if found is None else float(found)


def raised(call: Callable[[], Any]) -> str:
    """What a call raises, as its type and message; "nothing" where it goes through."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"
