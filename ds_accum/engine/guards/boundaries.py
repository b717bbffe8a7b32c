"""Backwards that no boundary comes after, and backwards that come after it.

DeepSpeed finds its boundary by counting calls of `step`, not backwards: inside `no_sync`, where `step` is not allowed,
the count stands still, and without `set_gradient_accumulation_boundary` nothing is ever reduced or updated. A second
backward after the boundary's overwrites the reduced gradient on ZeRO-1 and 2, and is reduced twice on ZeRO 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ds_accum.engine.guards.reporting import report_misuse, where_in_window
from ds_accum.errors import MisuseError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = [
    "BackwardAfterBoundaryError",
    "BoundaryMissedError",
    "StepInsideNoSyncError",
    "check_backward_is_before_the_boundary",
    "check_boundary_is_met",
]


class StepInsideNoSyncError(MisuseError):
    """`engine.step()` was called where nothing is reduced."""


class BoundaryMissedError(MisuseError):
    """As many backwards as a window has were made without reduction, and the boundary is not now."""


class BackwardAfterBoundaryError(MisuseError):
    """A backward came between the one at the boundary and its step."""


def check_backward_is_before_the_boundary(engine: TokenWeightedEngine) -> None:
    """Before a backward. ZeRO-3 adds to what it has reduced, so there it is right."""
    state = engine._accumulation
    if not state.reduced or engine.zero_optimization_stage() == 3:
        return
    steps = engine.gradient_accumulation_steps()
    report_misuse(
        engine,
        BackwardAfterBoundaryError(
            f"another backward begins {where_in_window(engine)}, whose gradients are reduced already: ZeRO-1 and 2 "
            "would keep only the last, ZeRO 0 would reduce the first twice",
            remedy=f"set gradient_accumulation_steps (now {steps}) to the backwards of a step, and call engine.step() "
            "after each; or add the losses up before one backward",
        ),
    )


def check_boundary_is_met(engine: TokenWeightedEngine) -> None:
    """Before `step`, as the training loop calls it."""
    state = engine._accumulation
    if engine.inside_no_sync_ctxt and state.coalescing is None:
        report_misuse(
            engine,
            StepInsideNoSyncError(
                f"engine.step() was called inside no_sync {where_in_window(engine)}, where nothing is reduced: each "
                "rank would be updated with its own gradients",
                remedy="leave no_sync before the window's last backward, and step after it",
            ),
        )
    done, steps = state.window.micro_batches, engine.gradient_accumulation_steps()
    if not state.unsynchronized or done < steps or engine.is_gradient_accumulation_boundary():
        return
    if engine._is_gradient_accumulation_boundary is not None:
        return  # the loop says itself when the boundary is
    report_misuse(
        engine,
        BoundaryMissedError(
            f"{done} backwards were made for {steps} accumulation steps of step {engine.global_steps + 1}, "
            f"{state.unsynchronized} of them inside no_sync, but DeepSpeed counts calls of engine.step() and is not at "
            "the boundary: nothing would be reduced or updated",
            remedy="call engine.set_gradient_accumulation_boundary(True) before the window's last backward, and False "
            "before its first",
        ),
    )
