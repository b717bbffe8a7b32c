"""What every engine can be asked, whoever trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ds_accum.compare.formulas import dtype_of
from ds_accum.compare.spec import Dtype, RunSpec
from ds_accum.compare.worker.ranks import Ranks
from ds_accum.compare.worker.watch import Watch
from ds_accum.compare.worker.workloads import Batch, MicroBatch, Training, build
from ds_accum.errors import UsageError

__all__ = [
    "Context",
    "Engine",
    "Held",
    "WindowOutcome",
    "clip_coefficient",
    "dtype_of",
    "moved",
    "optimizer_of",
    "starting_dtypes",
]

DTYPES: dict[Dtype, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What all engines of a launch have in common."""

    spec: RunSpec
    ranks: Ranks

    def training(self) -> Training:
        """The workload with fresh parameters, on the host."""
        return build(self.spec.workload, starting_dtypes(self.spec))


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowOutcome:
    """One window as this rank saw it. The norm and the coefficient are None where the engine takes none."""

    loss_sum: float
    """Sum of the token losses of this rank's micro-batches, from the mean that the loss function returned."""

    num_tokens: int
    grad_norm: float | None
    clip_coefficient: float | None
    applied: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Tensors that an engine holds on this rank; views of one storage may come several times."""

    parameters: Sequence[Tensor]
    gradients: Sequence[Tensor]
    optimizer_state: Sequence[Tensor]
    """With the fp32 copies of the parameters that an optimizer keeps, where the model is in 16 bits or sharded."""


class Engine(Protocol):
    """A model in training under one of the choices that are compared. All ranks call every method together."""

    name: str
    training: Training

    def train_window(
        self, batches: Sequence[MicroBatch], watch: Watch, after: Callable[[int], None] | None = None
    ) -> WindowOutcome:
        """One optimizer step. `after(m)` is called after every micro-batch but the last."""

    def parameters(self) -> Mapping[str, Tensor] | None:
        """All trainable parameters as the optimizer holds them, complete, float64, on the host; None but on rank 0."""

    def held(self) -> Held:
        """What this rank holds now."""

    def close(self) -> None:
        """Lets go of everything."""


def starting_dtypes(spec: RunSpec) -> tuple[torch.dtype, ...]:
    """The dtypes that the first parameters have to fit in, so that all variants start from the same."""
    used = {dtype_of(variant, spec) for variant in spec.variants}
    # bf16 first: what is left of a number then fits in fp16 as well, unless it is tiny.
    return tuple(DTYPES[dtype] for dtype in ("bf16", "fp16") if dtype in used)


def optimizer_of(spec: RunSpec, model: nn.Module) -> torch.optim.Optimizer:
    """torch's own optimizer, the same for every variant. Raises UsageError for one that is not offered."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if spec.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=spec.learning_rate, momentum=0.9)
    if spec.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=spec.learning_rate)
    raise UsageError(f"there is no optimizer {spec.optimizer}", remedy="choose sgd or adamw")


def clip_coefficient(norm: float | None, clipping: float) -> float | None:
    """What clipping multiplies a gradient of this norm by, as torch does; None without clipping, or a norm."""
    return None if norm is None or not clipping else min(1.0, clipping / (norm + 1e-6))


def moved(batch: Batch, device: torch.device, dtype: torch.dtype | None = None) -> dict[str, Any]:
    """A batch on a device, its floating-point tensors in `dtype`."""
    return {
        name: value.to(device=device, dtype=dtype if value.is_floating_point() else None)
        for name, value in batch.items()
    }
