"""What the ranks of `test_sequence_parallel.py` do: each holds a part of the tokens of its sequences, as in Ulysses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tiny import batch, moved, norm, start
from torch import Tensor

Arguments = dict[str, Any]

# Values of the tokens by micro-batch and rank; None does not count. Different numbers count everywhere.
WINDOW: list[list[list[float | None]]] = [
    [[1.0, 2.0, 3.0], [8.0, None, None], [4.0, None, 2.0], [None, None, 6.0]],
    [[None, None, 5.0], [2.0, 7.0, None], [1.0, 1.0, 1.0], [9.0, 3.0, None]],
]


def window(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """One window: how far it moved the parameters on this rank, its norm, and what was counted."""
    import deepspeed.runtime.sequence_parallel.parallel_state_sp as mpu

    mpu.initialize_sequence_parallel(sequence_parallel_size=arguments["sequence_parallel_size"])
    engine = start(arguments["engine"], mpu=mpu, accumulation=len(WINDOW), **arguments["settings"])
    for micro_batch in WINDOW:
        values = batch(micro_batch[rank])
        loss = engine(**values)
        counted = {}
        if arguments["engine"] == "ours" and arguments["loss"] == "whole group's, and its count":
            counted = {"num_tokens": _over_group(_count(values), mpu)}
        if arguments["loss"] != "rank's own":
            loss = _mean_over_group(loss, _count(values), mpu)
        engine.backward(loss, **counted)
        engine.step()
    said = {"moved": moved(engine), "norm": norm(engine), "steps": engine.global_steps}
    if arguments["engine"] == "ours":
        report = engine.last_step
        said |= {"tokens": report.num_tokens, "loss": report.loss, "reported norm": report.grad_norm}
    return said


def _count(values: dict[str, Tensor]) -> Tensor:
    return (values["labels"] != -100).sum().float()


def _over_group(number: Tensor, mpu: Any) -> Tensor:
    total = number.clone()
    torch.distributed.all_reduce(total, group=mpu.get_sequence_parallel_group())
    return total


def _mean_over_group(loss: Tensor, count: Tensor, mpu: Any) -> Tensor:
    """The mean over the counted tokens of the whole sequence, the same on every rank that has a part of it."""
    group = mpu.get_sequence_parallel_group()
    summed = loss * count
    gathered = torch.distributed.nn.functional.all_gather(summed, group=group)
    return torch.stack(gathered).sum() / _over_group(count, mpu).clamp(min=1)
