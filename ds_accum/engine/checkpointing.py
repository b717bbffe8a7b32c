"""What of the engine goes into a checkpoint: the constant of the next window, for a run resumed to the last bit.

And when a checkpoint is the latest one: once it is whole. In DeepSpeed, rank 0 says so when its own part is written; a
job that is killed then can't be resumed, as its latest checkpoint lacks what other ranks did not get to write.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepspeed import comm

from ds_accum.engine import deepspeed_private as private
from ds_accum.engine.holding_back import drop_held_back
from ds_accum.engine.stepping import inside_step
from ds_accum.errors import AccumulationError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = [
    "check_window_can_be_given_up",
    "give_up_window",
    "mark_latest",
    "take_engine_state",
    "with_engine_state",
]

_KEY = "ds_accum"


def with_engine_state(engine: TokenWeightedEngine, client_state: Mapping[str, Any] | None) -> dict[str, Any]:
    """The client's state, and ours beside it."""
    return {**(client_state or {}), _KEY: {"next_constant": engine._accumulation.next_constant}}


def check_window_can_be_given_up(engine: TokenWeightedEngine) -> None:
    """Raises AccumulationError after a backward that failed under ZeRO-2 and 3."""
    failure = engine._accumulation.failure
    if failure is not None and engine.zero_optimization_partition_gradients():
        raise AccumulationError(
            f"a backward ended with {type(failure).__name__}, and ZeRO-{engine.zero_optimization_stage()} has no way "
            "back from the reductions that it had begun",
            remedy="load the checkpoint in a new process",
        ) from failure


def give_up_window(engine: TokenWeightedEngine) -> None:
    """Drops the gradients of a window that is open, and begins a new one. Every rank has to call it.

    DeepSpeed keeps them, and its place between two boundaries, when a checkpoint is loaded.
    """
    state = engine._accumulation
    drop_held_back(engine)
    is_open = state.window.is_open or state.failure is not None
    state.pending.clear()
    state.start_window()
    if is_open:
        with inside_step(state), state.carrier.skipping():
            engine.optimizer.step()
            private.set_gradients_to_zero(engine)
            private.drop_what_is_left(engine.optimizer)
        private.begin_at_a_boundary(engine)
        state.start_window()


def take_engine_state(engine: TokenWeightedEngine, client_state: Any) -> Any:
    """Takes our part out of what was loaded; a checkpoint of stock DeepSpeed has none."""
    state = engine._accumulation
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
