"""What the ranks of `test_launch.py` do."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


def add_up_ranks(arguments: dict[str, Any], rank: int, folder: Path) -> dict[str, float]:
    total = torch.tensor([float(arguments["each"])])
    dist.all_reduce(total)
    return {"sum": float(total), "rank": rank}


def fail_on_one_rank(arguments: dict[str, Any], rank: int, folder: Path) -> None:
    if rank == 1:
        raise ValueError("only rank 1 fails")


def wait_on_one_rank(arguments: dict[str, Any], rank: int, folder: Path) -> None:
    time.sleep(60 if rank == 0 else 0)


def note_and_wait(arguments: dict[str, Any], rank: int, folder: Path) -> None:
    with Path(arguments["marker"]).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(100)


def die(arguments: dict[str, Any], rank: int, folder: Path) -> None:
    os._exit(3)
