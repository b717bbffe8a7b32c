"""The ranks of a launch: how they meet, and how they agree on things that are no part of what is measured.

All that the comparison itself exchanges travels in a process group of its own, over gloo: a rank whose training failed
in the middle can still say so, and nothing of it meets a collective of the engines.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist

from ds_accum.compare.worker.stopping import OutOfStepError, one_sentence
from ds_accum.errors import UsageError

__all__ = ["Ranks", "join"]

MOMENT = 10.0
"""Seconds that a rank whose training failed waits for the others to say the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process among the others."""

    rank: int
    world_size: int
    device: torch.device
    control: Any
    """The process group of what the comparison itself exchanges."""

    timeout_s: float

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def sum(self, values: list[float]) -> list[float]:
        """The sum of each value over all ranks, in float64."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def max(self, values: list[float]) -> list[float]:
        """The largest of each value over all ranks."""
        return self._reduced(values, dist.ReduceOp.MAX)

    def min(self, values: list[float]) -> list[float]:
        """The smallest of each value over all ranks."""
        return self._reduced(values, dist.ReduceOp.MIN)

    def failure(self, error: BaseException | None) -> str | None:
        """What went wrong on the first rank on which something did; None if on none.

        Raises OutOfStepError where a rank that failed finds that the others are still busy.
        """
        wait = self.timeout_s if error is None else MOMENT
        failed = torch.tensor([0 if error is None else 1])
        try:
            work = dist.all_reduce(failed, group=self.control, async_op=True)
            if work is not None:
                work.wait(timedelta(seconds=wait))
        except RuntimeError as silent:
            raise OutOfStepError(f"the other ranks said nothing for {wait:g} s") from (error or silent)
        if not failed.item():
            return None
        said: list[str | None] = [None] * self.world_size
        dist.all_gather_object(said, None if error is None else one_sentence(error), group=self.control)
        first = next(rank for rank, sentence in enumerate(said) if sentence is not None)
        sentence = str(said[first])
        if int(failed.item()) < self.world_size:
            raise OutOfStepError(f"rank {first} failed and others went on: {sentence}") from error
        return sentence

    def _reduced(self, values: list[float], operation: Any) -> list[float]:
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, op=operation, group=self.control)
        result: list[float] = tensor.tolist()
        return result


def join(folder: Path, *, device: Literal["cpu", "cuda"], timeout_s: float, environment: Mapping[str, str]) -> Ranks:
    """Meets the other ranks: by the launcher's address where it has set one, else in a file of the folder.

    Raises UsageError where RANK or WORLD_SIZE is missing, or there is no CUDA device for this rank.
    """
    try:
        rank, world_size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"RANK and WORLD_SIZE have to be numbers in the environment, and {error} is wrong",
            remedy="start the worker through ds-accum compare, torchrun or the deepspeed launcher",
        ) from error
    local_rank = int(environment.get("LOCAL_RANK", rank))
    meeting: dict[str, Any] = {"init_method": "env://"}
    if "MASTER_ADDR" not in environment:
        meeting = {"init_method": f"file://{(folder / 'rendezvous').resolve()}"}
        # DeepSpeed looks for these; the ranks meet in the file, so no port can be taken.
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
        if sys.platform.startswith("linux"):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("LOCAL_RANK", str(local_rank))
    os.environ.setdefault("LOCAL_SIZE", str(world_size))
    os.environ.update(CROSS_RANK="0", CROSS_SIZE="1")
    where = _device_of(device, local_rank)

    import deepspeed

    deepspeed.init_distributed(
        dist_backend="nccl" if device == "cuda" else "gloo",
        auto_mpi_discovery=False,
        timeout=timedelta(seconds=timeout_s),
        rank=rank,
        world_size=world_size,
        verbose=False,
        **meeting,
    )
    control = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
    return Ranks(rank=rank, world_size=world_size, device=where, control=control, timeout_s=timeout_s)


def _device_of(device: Literal["cpu", "cuda"], local_rank: int) -> torch.device:
    if device == "cpu":
        return torch.device("cpu")
    if torch.cuda.device_count() <= local_rank:
        raise UsageError(
            f"rank {local_rank} of this node has no CUDA device: there are {torch.cuda.device_count()}",
            remedy="give no more ranks than devices, or compare on the CPU",
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)
