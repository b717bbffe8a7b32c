"""Backwards that no boundary comes after, and backwards that come after it.

DeepSpeed finds its boundary by counting calls of `step`, not backwards: inside `no_sync`, where `step` is not allowed,
the count stands still, and without `set_gradient_accumulation_boundary` nothing is ever reduced or updated. A second
backward after the boundary's overwrites the reduced gradient on ZeRO-1 and 2, and is reduced twice on ZeRO 0.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ds_accum.engine import deepspeed_private as private
from ds_accum.engine.guards.reporting import report_misuse, where_in_window
from ds_accum.errors import MisuseError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine
    from ds_accum.engine.totals import WindowTotals

__all__ = [
    "BackwardAfterBoundaryError",
    "BoundaryMissedError",
    "BoundaryMissedWarning",
    "StepInsideNoSyncError",
    "StepWithoutBackwardError",
    "check_backward_is_before_the_boundary",
    "check_boundary_has_a_backward",
    "check_step",
    "check_window_has_backwards",
]


class StepInsideNoSyncError(MisuseError):
    """`engine.step()` was called where nothing is reduced."""


class BoundaryMissedError(MisuseError):
    """As many backwards as a window has were made without reduction, and the boundary is not now."""


class BoundaryMissedWarning(RuntimeWarning):
    """As many backwards as a window has came before one call of `step`, which counts for one."""


class StepWithoutBackwardError(MisuseError):
    """`engine.step()` was called, and no backward came since the call before."""


class BackwardAfterBoundaryError(MisuseError):
    """A backward came between the one at the boundary and its step."""


def check_backward_is_before_the_boundary(engine: TokenWeightedEngine) -> None:
    """Before a backward. ZeRO-3 adds to what it has reduced, so there it is right."""
    state = engine._accumulation
    _warn_of_missed_steps(engine)
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


def check_step(engine: TokenWeightedEngine) -> None:
    """Before `step`, as the training loop calls it."""
    _check_boundary_is_met(engine)
    _check_steps_follow_backwards(engine)


def _check_boundary_is_met(engine: TokenWeightedEngine) -> None:
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
            f"{state.unsynchronized} of them without a reduction (no_sync, coalesce_grad_reduction), but DeepSpeed "
            "counts calls of engine.step() and is not at the boundary: nothing would be reduced or updated",
            remedy="call engine.set_gradient_accumulation_boundary(True) before the window's last backward, and False "
            "before its first",
        ),
    )


def _check_steps_follow_backwards(engine: TokenWeightedEngine) -> None:
    """Before `step`: DeepSpeed counts its calls, so one belongs after each backward."""
    state, done = engine._accumulation, engine._accumulation.window.micro_batches
    _warn_of_missed_steps(engine)
    if not _is_counted(engine) or state.unsynchronized or engine.is_gradient_accumulation_boundary():
        return
    if done and done == state.stepped_at:
        _report_a_step_without_backward(engine)


def _warn_of_missed_steps(engine: TokenWeightedEngine) -> None:
    """Once. As many backwards without a step as a window has may be losses of one micro-batch, right on ZeRO-3."""
    state, steps = engine._accumulation, engine.gradient_accumulation_steps()
    new = state.window.micro_batches - state.stepped_at
    if state.told_of_missed_steps or not new >= steps > 1 or state.unsynchronized or not _is_counted(engine):
        return
    state.told_of_missed_steps = True
    warnings.warn(
        f"{new} backwards came without an engine.step(), and gradient_accumulation_steps is {steps}: DeepSpeed counts "
        "calls of step, so the update comes after as many of these, not after as many backwards; call engine.step() "
        "after each backward, and add up the losses of a micro-batch that has several",
        BoundaryMissedWarning,
        stacklevel=4,
    )


def check_boundary_has_a_backward(engine: TokenWeightedEngine) -> None:
    """At the boundary, where ranks are known to have as many micro-batches: it is one of theirs that comes to it."""
    state = engine._accumulation
    if state.window.is_open and state.window.micro_batches == state.stepped_at and _is_counted(engine):
        _report_a_step_without_backward(engine)


def check_window_has_backwards(engine: TokenWeightedEngine, totals: WindowTotals) -> None:
    """At the boundary, on all ranks alike."""
    if totals.micro_batches:
        return
    report_misuse(
        engine,
        StepWithoutBackwardError(
            f"engine.step() came to the boundary of step {engine.global_steps + 1}, but no rank has made a backward "
            "that the engine knows of: nothing would be updated",
            remedy="call engine.backward(loss) before it; loss.backward() is seen where the model returns the loss, or "
            "a tensor that it is made of, by itself or in a tuple, list or dict",
        ),
    )


def _is_counted(engine: TokenWeightedEngine) -> bool:
    """Whether the boundary comes by the number of calls of `step`, and the loop does not say itself where it is."""
    return private.manages_accumulation(engine) and engine._is_gradient_accumulation_boundary is None


def _report_a_step_without_backward(engine: TokenWeightedEngine) -> None:
    report_misuse(
        engine,
        StepWithoutBackwardError(
            f"engine.step() was called twice {where_in_window(engine)}, with no backward between: DeepSpeed would "
            "count a micro-batch that never was",
            remedy="call engine.step() once after each backward",
        ),
    )
