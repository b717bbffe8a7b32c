"""What the ranks of `test_totals.py` and `test_constant.py` do: the engine's two collectives, without an engine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ds_accum.engine import exchange, totals
from ds_accum.engine.constant import Agreement

Arguments = dict[str, Any]


def gather(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """The totals of one record a rank, with as many ranks gathered at most as the arguments say."""
    exchange._MOST_RANKS_GATHERED = arguments["most"]  # type: ignore[attr-defined]
    record = torch.tensor([float(number) for number in arguments["records"][rank]], dtype=torch.float64)
    gathering = totals.Gathering(record, dist.group.WORLD, micro_batches=2)
    found = gathering.wait()
    # JSON has no infinity.
    return {name: str(value) for name, value in asdict(found).items()} | {"even": found.is_even}


def agree(arguments: Arguments, rank: int, folder: Path) -> float:
    """The constant that the ranks agree on, from each one's first count."""
    count = torch.tensor(float(arguments["counts"][rank]), dtype=torch.float64)
    return float(Agreement(count, dist.group.WORLD).constant(micro_batches=arguments["micro_batches"]))
