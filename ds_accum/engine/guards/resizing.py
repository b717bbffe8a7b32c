"""Accumulation, micro-batch size or world changed inside a window: the boundary moves as the loop runs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed import comm

from ds_accum.engine.guards.reporting import report_misuse, where_in_window
from ds_accum.errors import ConfigError, MisuseError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["WindowResizedError", "check_new_size", "check_resizing", "check_size", "note_size"]

_SIZES = ("the world size", "gradient_accumulation_steps", "train_micro_batch_size_per_gpu")


class WindowResizedError(MisuseError):
    """The batch settings of a window changed while it was open."""


def check_new_size(size: object, name: str) -> None:
    """Raises ConfigError for a number of samples that is none: DeepSpeed would divide by it."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        error = ConfigError(f"{name} is {size!r}", remedy="pass a positive number of samples, as an integer")
        error.shows_remedy = True  # it is raised into a training script
        raise error


def check_resizing(engine: TokenWeightedEngine, function: str) -> None:
    """Before a call that changes the batch."""
    if engine._accumulation.window.is_open:
        _report(engine, f"{function} was called {where_in_window(engine)}")


def note_size(engine: TokenWeightedEngine) -> None:
    """When a window is opened, and after a change that is told already."""
    engine._accumulation.opened_for = _sizes(engine)


def check_size(engine: TokenWeightedEngine) -> None:
    """Before each further forward of a window and its step at the boundary, and before they communicate."""
    state = engine._accumulation
    if not state.window.is_open:
        return
    sizes = _sizes(engine)
    if sizes == state.opened_for:
        return
    opened_for, state.opened_for = state.opened_for, sizes
    name, before, after = next(
        (name, before, after) for name, before, after in zip(_SIZES, opened_for, sizes, strict=True) if before != after
    )
    _report(engine, f"{name} went from {before} to {after} {where_in_window(engine)}")


def _sizes(engine: TokenWeightedEngine) -> tuple[int, ...]:
    return comm.get_world_size(), engine.gradient_accumulation_steps(), engine.train_micro_batch_size_per_gpu()


def _report(engine: TokenWeightedEngine, fact: str) -> None:
    report_misuse(
        engine,
        WindowResizedError(
            f"{fact}: this step has neither the old global batch nor the new one",
            remedy="change the batch between windows, after engine.step() at the boundary",
        ),
    )
