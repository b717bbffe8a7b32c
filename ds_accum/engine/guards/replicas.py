"""Copies of the parameters that differ between ranks, under `"check": "thorough"`.

ZeRO 0 to 2 hold every parameter on every rank, and nothing compares them: replicas that differ train on, each on
gradients of the others. At the first step and every few after it each rank adds up the bits of each parameter, frozen
ones too, and the sums are compared: before the update, which on ZeRO-1 and 2 overwrites what was trained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ds_accum.engine.exchange import gather
from ds_accum.engine.guards.reporting import report_misuse
from ds_accum.errors import MisuseError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["CHECKED_EVERY", "ReplicasDivergedError", "check_replicas"]

CHECKED_EVERY = 10
"""Steps between two comparisons."""

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class ReplicasDivergedError(MisuseError):
    """A parameter is not the same on all ranks."""


def check_replicas(engine: TokenWeightedEngine) -> None:
    """Before the update, which has not counted this step yet; ZeRO-3 has no replicas."""
    state = engine._accumulation
    if state.settings.check != "thorough" or engine.zero_optimization_stage() == 3:
        return
    if engine.global_steps % CHECKED_EVERY:
        return
    names, parameters = zip(*engine.module.named_parameters(), strict=True)
    table, work = gather(torch.stack([_sum_of_bits(parameter) for parameter in parameters]), state.group)
    work.wait()
    differing = (table != table[0]).nonzero()
    if not differing.numel():
        return
    # The first parameter in the model's order, then the first rank.
    rank, index = min((int(row[1]), int(row[0])) for row in differing)[::-1]
    report_misuse(
        engine,
        ReplicasDivergedError(
            f'before the update of step {engine.global_steps + 1} the parameter "{names[index]}" on rank {rank} is not '
            "what it is on rank 0: the replicas have diverged, and each is trained on gradients of the others",
            remedy="look for what changes parameters on some ranks alone: initialization without a common seed, an "
            "edit by hand, a rank that loaded another file; then start from a checkpoint",
        ),
    )


def _sum_of_bits(parameter: Tensor) -> Tensor:
    return parameter.detach().contiguous().view(_BITS[parameter.element_size()]).sum(dtype=torch.int64)
