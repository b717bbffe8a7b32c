"""The boundary: the window's totals, the late factor, the step that is taken or skipped, and its report."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from deepspeed import comm

from ds_accum.engine import deepspeed_private as private
from ds_accum.engine.constant import constant_after
from ds_accum.engine.guards.boundaries import check_boundary_has_a_backward, check_window_has_backwards
from ds_accum.engine.guards.evenness import check_evenness
from ds_accum.engine.guards.order import check_order
from ds_accum.engine.guards.replicas import check_replicas
from ds_accum.engine.guards.scaling import check_loss_scale
from ds_accum.engine.guards.zeroing import check_gradients_are_left
from ds_accum.engine.holding_back import reduce_held_back
from ds_accum.engine.opening import expected_micro_batches
from ds_accum.engine.publishing import publish
from ds_accum.engine.refused_calls import require_window_can_be_finished
from ds_accum.engine.report import SkipReason, StepReport
from ds_accum.engine.state import EngineState
from ds_accum.engine.totals import Gathering, WindowTotals
from ds_accum.errors import AccumulationError, CountError, EmptyWindowError, MisuseError, NonFiniteLossError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["clip_plain_gradients", "flush", "inside_step", "ranks_over_factor", "taking_step"]


def totals_of(engine: TokenWeightedEngine) -> WindowTotals:
    """The window's totals over all ranks, gathered now unless they are under way; every rank has to ask."""
    state = engine._accumulation
    micro_batches = state.window.micro_batches
    if state.gathering is None or state.gathering.micro_batches != micro_batches:
        state.gathering, state.totals = None, None
    while state.totals is None:
        state.gathering = state.gathering or Gathering(state.window.record(), state.group, micro_batches)
        state.totals = state.gathering.wait()
        if state.totals is None:
            state.gathering = None  # it met a rank that was still opening its window
    return state.totals


def checked_totals(engine: TokenWeightedEngine) -> WindowTotals:
    """The same, once nothing speaks against applying them.

    Raises CountError and UnevenMicroBatchesError on all ranks alike. What they go on with is gathered anew: a rank that
    has caught up waits for the others, whose windows have not changed.
    """
    state, totals = engine._accumulation, totals_of(engine)
    if state.checked is totals:
        return totals  # `flush` asks before its step does
    try:
        check_evenness(engine, totals)
        check_window_has_backwards(engine, totals)
        _check_counts(engine, totals)
        _check_declared(engine, totals)
    except AccumulationError as error:
        state.gathering = state.totals = None
        if not isinstance(error, MisuseError):
            state.refused = error
        raise
    state.checked = totals
    return totals


def late_factor(engine: TokenWeightedEngine) -> float:
    """c = divisor x D / T; 1.0 for a window that will be skipped."""
    state, totals = engine._accumulation, totals_of(engine)
    weight = totals.tokens if state.window.by_token else totals.micro_batches
    if not weight > 0:
        return 1.0
    factor = state.divisor * totals.constant / weight
    # A declared total is divided by the divisor and multiplied by it again, which may round.
    return 1.0 if math.isclose(factor, 1.0, rel_tol=1e-15) else factor


def ranks_over_factor(engine: TokenWeightedEngine, group: Any, ranks: float | None) -> float:
    """The number of ranks that a reduction divides by, with the late factor in it where this is its place."""
    if ranks is None:
        ranks = comm.get_world_size(group=group)
    state = engine._accumulation
    if not state.carrier.at_reduction or (not state.window.is_open and state.totals is None):
        return ranks
    factor = late_factor(engine)
    return ranks if factor == 1.0 else ranks / factor


def skip_reason_of(engine: TokenWeightedEngine) -> SkipReason | None:
    """Why the window must not be applied; the same on every rank."""
    totals = totals_of(engine)
    if totals.nonfinite:
        return "non-finite loss"
    if not (totals.num_tokens if engine._accumulation.window.by_token else totals.micro_batches):
        return "no counted token"
    return None


@contextmanager
def taking_step(engine: TokenWeightedEngine) -> Iterator[None]:
    """Around DeepSpeed's own model step: carries the late factor or skips, then reports and begins a new window."""
    state = engine._accumulation
    if state.failure is not None:
        if isinstance(state.failure, AccumulationError):
            raise state.failure
        raise AccumulationError(
            f"a backward of this window ended with {type(state.failure).__name__}, so its gradients are incomplete",
            remedy="start again from the last checkpoint",
        ) from state.failure
    if state.scaled:
        raise AccumulationError(
            "a loss that engine.scale returned was never propagated back, but its tokens are in the window",
            remedy="call .backward() on it, or leave engine.scale out",
        )
    totals = checked_totals(engine)
    check_boundary_has_a_backward(engine)
    check_loss_scale(engine)
    check_gradients_are_left(engine)
    check_replicas(engine)
    factor = late_factor(engine)
    state.skip_reason = skip_reason_of(engine)
    learning_rate = _learning_rate(engine)
    with _skippable(state), inside_step(state):
        assert state.skipping is not None
        if state.skip_reason is None:
            state.skipping.enter_context(state.carrier.carrying(factor))
            # Where it clips, DeepSpeed calls this by itself.
            plain, clips = private.kind_of(engine.optimizer) == "torch", engine.gradient_clipping() > 0
            if plain and not clips and state.settings.report_norm == "always":
                clip_plain_gradients(engine)
        else:
            state.skipping.enter_context(state.carrier.skipping())
        yield
        private.drop_what_is_left(engine.optimizer)
        overflow = bool(getattr(engine.optimizer, "overflow", False))
    reason = state.skip_reason
    if reason is None and overflow:
        reason = "overflow" if engine.fp16_enabled() else "non-finite gradient"
    # Read by DeepSpeed before a carrier could put it right.
    engine._global_grad_norm = private.norm_after_step(engine, overflow=overflow)
    if reason is None:
        try:
            check_order(engine)
        except MisuseError as error:
            state.late_error = error
    state.report = _report(engine, totals, reason, learning_rate)
    state.misuses.clear()
    publish(engine)
    state.next_constant = (
        constant_after(
            totals,
            micro_batches=expected_micro_batches(engine),
            of=totals.micro_batches,
        )
        or state.next_constant
    )
    state.finished = time.perf_counter()
    state.start_window()
    state.late_error = state.late_error or _error_asked_for(engine, reason)


def clip_plain_gradients(engine: TokenWeightedEngine) -> None:
    """Clips the complete gradient of a plain torch optimizer, keeps its norm, and skips the step if that is not finite.

    DeepSpeed's own function drops the norm, and writes what is not finite into the weights.
    """
    from deepspeed.runtime.utils import clip_grad_norm_

    state = engine._accumulation
    if state.skip_reason is not None:
        return
    state.events.add("norm")
    norm = clip_grad_norm_(
        parameters=engine.module.parameters(), max_norm=engine.gradient_clipping() or math.inf, mpu=engine.mpu
    )
    engine._global_grad_norm = float(norm)
    if not math.isfinite(engine._global_grad_norm):
        state.skip_reason = "non-finite gradient"
        if state.skipping is not None:
            state.skipping.enter_context(state.carrier.skipping())


def flush(engine: TokenWeightedEngine) -> bool:
    """Applies the incomplete window now; returns whether there was one. Every rank has to call it."""
    state = engine._accumulation
    if not totals_of(engine).micro_batches:
        if state.agreement is not None:
            state.agreement.drop()
        state.pending.begin_window()
        state.gathering = state.totals = state.agreement = state.declared = None
        return False
    checked_totals(engine)
    if state.coalescing is None and private.manages_accumulation(engine):
        require_window_can_be_finished(engine)
    boundary = engine._is_gradient_accumulation_boundary
    engine._is_gradient_accumulation_boundary = True
    try:
        if state.coalescing is not None:
            reduce_held_back(engine)
            # DeepSpeed puts back what it was at the window's first micro-batch.
            engine._is_gradient_accumulation_boundary = True
        elif private.manages_accumulation(engine) and not state.reduced:
            private.finish_reduction(engine)
        engine.step()
    finally:
        engine._is_gradient_accumulation_boundary = boundary
        if not state.window.is_open:
            private.begin_at_a_boundary(engine)
    return True


def _check_declared(engine: TokenWeightedEngine, totals: WindowTotals) -> None:
    state = engine._accumulation
    if state.declared is None or not state.window.by_token:
        return
    if round(totals.constant * state.divisor) == max(totals.num_tokens or 0, 1):
        return
    declared = float(state.declared)
    fact = f"begin_window declared {declared:g} tokens over all ranks, but {totals.num_tokens} came"
    if state.needs_look_ahead:
        raise AccumulationError(
            fact,
            remedy="declare what the window's micro-batches really count, on every rank; load_checkpoint gives this "
            "window up",
        )
    warnings.warn(f"{fact}; the step is exact all the same", RuntimeWarning, stacklevel=2)


def _check_counts(engine: TokenWeightedEngine, totals: WindowTotals) -> None:
    """Of counts that are on a device, nothing is known before they are gathered: then on all ranks alike."""
    if engine._accumulation.window.by_token and not (totals.smallest >= 0 and math.isfinite(totals.tokens)):
        raise CountError(
            f"the token counts of step {engine.global_steps + 1} add up to {totals.tokens:g}, the smallest being "
            f"{totals.smallest:g}",
            remedy="pass how many tokens each loss counts: a finite number, 0 or more; load_checkpoint gives this "
            "window up",
        )


def _error_asked_for(engine: TokenWeightedEngine, reason: SkipReason | None) -> AccumulationError | None:
    """The error that the config wants for a skipped step. Where it wants none, the first one is told on stderr."""
    state = engine._accumulation
    error: AccumulationError
    if reason == "no counted token":
        error = EmptyWindowError(
            "no rank has a counted token in the whole window, so the step was skipped",
            remedy="look at the labels, or at what is counted"
            + ("" if state.settings.on_empty_window == "skip" else '; ds_accum.on_empty_window "skip" goes on'),
        )
        asked = state.settings.on_empty_window == "raise"
    elif reason == "non-finite loss":
        error = NonFiniteLossError(
            "a loss of the window is infinite or not a number, so the step was skipped on every rank",
            remedy="if it is a mean over no token, divide by at least 1 (clamp the denominator)",
        )
        asked = state.settings.on_nonfinite == "raise"
    else:
        return None
    if asked:
        return error
    if reason not in state.told_skips and engine.global_rank == 0:
        sys.stderr.write(f"ds-accum: step {engine.global_steps}: {error}\n")
    state.told_skips.add(reason)
    return None


@contextmanager
def _skippable(state: EngineState) -> Iterator[None]:
    """Around a step that may turn out to be skipped while it is taken."""
    with ExitStack() as state.skipping:
        try:
            yield
        finally:
            state.skipping.close()
            state.skipping = None


@contextmanager
def inside_step(state: EngineState) -> Iterator[None]:
    """Around what the engine itself does with the optimizer: the guards let it pass."""
    state.in_step = True
    try:
        yield
    finally:
        state.in_step = False


def _learning_rate(engine: TokenWeightedEngine) -> float | None:
    groups = engine.optimizer.param_groups
    return float(groups[0]["lr"]) if groups and "lr" in groups[0] else None


def _report(
    engine: TokenWeightedEngine, totals: WindowTotals, reason: SkipReason | None, learning_rate: float | None
) -> Callable[[], StepReport]:
    """What makes the report. The norm stays on its device until then: to read it is to wait for the update."""
    state = engine._accumulation
    norm = None if state.skip_reason in ("non-finite loss", "no counted token") else engine.get_global_grad_norm()
    weight = totals.micro_batches if totals.num_tokens is None else totals.tokens
    tokens = {rank: own.num_tokens for rank, own in enumerate(totals.per_rank or ()) if own.num_tokens is not None}
    fewest, most = (
        (min(tokens, key=tokens.__getitem__), max(tokens, key=tokens.__getitem__)) if tokens else (None, None)
    )
    return partial(
        StepReport.measured,
        norm,
        float(engine.gradient_clipping()),
        step=engine.global_steps,
        micro_batches=state.window.micro_batches,
        ranks=comm.get_world_size(state.group),
        num_tokens=totals.num_tokens,
        min_rank_tokens=None if fewest is None else tokens[fewest],
        min_rank=fewest,
        max_rank_tokens=None if most is None else tokens[most],
        max_rank=most,
        loss=totals.loss_sum / weight if weight and not totals.counts_are_mixed else None,
        learning_rate=learning_rate,
        loss_scale=state.window.loss_scale,
        applied=reason is None,
        skipped_because=reason,
        weighting_skew=totals.weighting_skew,
        misuses=dict(state.misuses),
        events=state.events.counts(),
        seconds=time.perf_counter() - state.finished,
    )
