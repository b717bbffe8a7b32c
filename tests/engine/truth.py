"""What a step should have done: one process, float64, the whole global batch in one forward.

    S = sum of the losses of all counted tokens of the window, on all ranks;  T = their number;  gradient = dS / T

With `micro_batch`, the mean of means: each micro-batch's own mean, averaged over micro-batches and ranks, as stock
DeepSpeed does it. Clipping is torch's: gradient * min(1, clip / (norm + 1e-6)).
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from cases import Case, samples_of, samples_of_window
from model import batch_of, initial_model
from optimizers import true_optimizer
from torch import Tensor

Normalization = Literal["token", "micro_batch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """One entry per window: all parameters after it [P], the norm before clipping, the loss, the tokens.

    `initial` are the parameters [P] before the first.
    """

    initial: Tensor
    parameters: tuple[Tensor, ...]
    norms: tuple[float, ...]
    losses: tuple[float, ...]
    tokens: tuple[int, ...]


def true_run(case: Case, normalization: Normalization = "token") -> Truth:
    """The run that a case should be."""
    model = initial_model(case).double()
    optimizer = true_optimizer(case.optimizer, model)
    initial = _flat(model)
    parameters, norms, losses, tokens = [], [], [], []
    for window in range(len(case.windows)):
        optimizer.zero_grad()
        batch = batch_of(case, window, samples_of_window(case, window))
        sums, counted = model.sums_of_losses(**batch)
        loss = (sums * _weights(case, window, counted.double(), normalization)).sum()
        loss.backward()
        norms.append(_clip(model, case.clipping))
        if window != case.overflows_in:
            optimizer.step()
        losses.append(float(loss))
        tokens.append(int(counted.sum()))
        parameters.append(_flat(model))
    return Truth(
        initial=initial, parameters=tuple(parameters), norms=tuple(norms), losses=tuple(losses), tokens=tuple(tokens)
    )


def kept_truth(case: Case, folder: Path, normalization: Normalization = "token") -> Truth:
    """`true_run`, kept in a folder for the next case that differs only in how the same thing is done."""
    same: dict[str, Any] = {
        name: getattr(case, name)
        for name in ("ranks", "micro_batch_size", "windows", "clipping", "data", "optimizer", "shift", "overflows_in")
    } | {"normalization": normalization, "rounded_to": case.dtype}
    key = hashlib.sha256(json.dumps(same).encode()).hexdigest()[:16]
    path = folder / f"truth-{key}.pt"
    if not path.exists():
        truth = true_run(case, normalization)
        partial = path.with_suffix(f".{os.getpid()}.part")
        torch.save({name: getattr(truth, name) for name in Truth.__slots__}, partial)
        partial.rename(path)
        return truth
    return Truth(**torch.load(path))


def _weights(case: Case, window: int, per_sample: Tensor, normalization: Normalization) -> Tensor:
    """The weight [B] of each sample's summed loss, from its counted tokens [B]."""
    if normalization == "token":
        return torch.full_like(per_sample, 1 / max(float(per_sample.sum()), 1.0))
    weights = torch.zeros_like(per_sample)
    means = case.windows[window] * case.ranks
    for micro_batch in range(case.windows[window]):
        for rank in range(case.ranks):
            samples = list(samples_of(case, window, micro_batch, rank))
            weights[samples] = 1 / (max(float(per_sample[samples].sum()), 1.0) * means)
    return weights


def _clip(model: torch.nn.Module, clipping: float) -> float:
    """The norm of all gradients, which are clipped to `clipping` unless that is 0."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = float(torch.sqrt(sum((gradient.square().sum() for gradient in gradients), torch.zeros(()).double())))
    if clipping:
        for gradient in gradients:
            gradient.mul_(min(1.0, clipping / (norm + 1e-6)))
    return norm


def _flat(model: torch.nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).clone()
