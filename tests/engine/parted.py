"""What the ranks of `test_parted_ranks.py` do: their first exchanges are for different things."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tiny import batch, moved, start, train

from ds_accum.engine import exchange

Arguments = dict[str, Any]


def _raised(call: Any) -> str:
    try:
        return f"returned {call()}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _engine(arguments: Arguments) -> Any:
    if arguments["reduced"]:
        exchange._MOST_RANKS_GATHERED = 1  # type: ignore[attr-defined]
    dtype = arguments["dtype"]
    more = {"fp16": {"enabled": True, "initial_scale_power": 4}} if dtype == "fp16" else {}
    return start("ours", dtype=dtype, stage=arguments["stage"], accumulation=4, **more)


def flush_on_one_with_more(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Rank 0 has a micro-batch and rank 1 has none; `warm`: after a whole window on both."""
    engine = _engine(arguments)
    for _ in range(4 if arguments["warm"] else 0):
        train(engine, [1.0])
    if rank == 0:
        engine.backward(engine(**batch([2.0])))
    said = {"flush": _raised(engine.flush)}
    if rank == 1 and not arguments["reduced"]:
        # It catches up, with the constant that rank 0 has opened the window with.
        engine.backward(engine(**batch([4.0])))
    return said | {"again": _raised(engine.flush), "moved": moved(engine) if not arguments["reduced"] else None}


def flush_after_a_forward(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Rank 0 has made a forward and no backward, and both flush nothing; then a window is whole."""
    engine = _engine(arguments)
    if rank == 0:
        engine(**batch([2.0]))
    said = {"flush": _raised(engine.flush)}
    for value in (1.0, 2.0, 3.0, 6.0):
        train(engine, [value])
    return said | {"moved": moved(engine), "tokens": engine.last_step.num_tokens}


def declare_after_a_forward(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Rank 0 has made a forward in training before it declares its window."""
    engine = _engine(arguments)
    if rank == 0:
        engine(**batch([2.0]))
    engine.begin_window(4 + rank * 4)
    for _ in range(4):
        train(engine, [3.0] * (1 + rank))
    return {"moved": moved(engine), "tokens": engine.last_step.num_tokens}


def declare_too_late(arguments: Arguments, rank: int, folder: Path) -> None:
    """Rank 1 never declares: rank 0 waits inside begin_window for longer than it may."""
    engine = start("ours", accumulation=4, stage=1, block={"counting": {"shift": False}, "timeout_s": 4})
    if rank == 0:
        engine.begin_window(16)
    time.sleep(30)
