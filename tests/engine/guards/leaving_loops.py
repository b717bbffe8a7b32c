"""Loops that end in the middle of a window, and one that does not."""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

from guards.loop import Loop


def destroy_inside(loop: Loop) -> list[str]:
    loop.window()
    loop.micro_batch()
    return _said_at_destruction(loop)


def destroy_after_a_window(loop: Loop) -> list[str]:
    loop.window()
    return _said_at_destruction(loop)


def destroy_after_a_flush(loop: Loop) -> list[str]:
    loop.window()
    loop.micro_batch()
    loop.flush()
    return _said_at_destruction(loop)


def _said_at_destruction(loop: Loop) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.engine.destroy()
        loop.engine._accumulation.watchdog = None
        loop.engine.destroy = lambda: None  # once is enough
    return [f"{warning.category.__name__}: {warning.message}" for warning in caught]


def main(micro_batches: int, how: str = "quietly") -> None:
    """Trains on one rank for so many micro-batches of windows of two; then the interpreter exits, or fails."""
    import deepspeed
    from cases import Case

    folder = Path(tempfile.mkdtemp())
    deepspeed.init_distributed(
        dist_backend="gloo",
        auto_mpi_discovery=False,
        init_method=f"file://{folder / 'rendezvous'}",
        rank=0,
        world_size=1,
        verbose=False,
    )
    loop = Loop(Case(name="leaves", stage=2, dtype="fp32", ranks=1, micro_batch_size=1, windows=(2, 2)), 0)
    for _ in range(micro_batches):
        loop.micro_batch()
    globals()["kept"] = loop  # as a training script's own globals keep its engine
    if how == "failing":
        raise ValueError("the data have ended badly")


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
