"""What of the engine goes into a checkpoint: the constant of the next window, for a run resumed to the last bit.

And when a checkpoint is the latest one: once it is whole. In DeepSpeed, rank 0 says so when its own part is written; a
job that is killed then can't be resumed, as its latest checkpoint lacks what other ranks did not get to write.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepspeed import comm

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["mark_latest", "take_engine_state", "with_engine_state"]

_KEY = "ds_accum"


def with_engine_state(engine: TokenWeightedEngine, client_state: Mapping[str, Any] | None) -> dict[str, Any]:
    """The client's state, and ours beside it."""
    return {**(client_state or {}), _KEY: {"next_constant": engine._accumulation.next_constant}}


def take_engine_state(engine: TokenWeightedEngine, client_state: Any) -> Any:
    """Takes our part out of what was loaded, and begins a new window; a checkpoint of stock DeepSpeed has none."""
    state = engine._accumulation
    if state.coalescing is not None:
        state.coalescing.close()
        state.coalescing = None
    state.start_window()
    state.next_constant = None
    if isinstance(client_state, dict):
        ours = client_state.pop(_KEY, None)
        if isinstance(ours, Mapping):
            state.next_constant = ours.get("next_constant")
    return client_state


def mark_latest(engine: TokenWeightedEngine, folder: str, tag: Any) -> None:
    """Makes a checkpoint that all ranks have written the latest one of its folder, at once or not at all."""
    if engine.global_rank == 0:
        partial = Path(folder) / "latest.part"
        partial.write_text(str(tag), encoding="utf-8")
        partial.replace(Path(folder) / "latest")
    comm.barrier()
