"""Attaching: an engine that DeepSpeed has built becomes a TokenWeightedEngine.

The class is exchanged after the fact, so that every branch of `deepspeed.initialize` stays DeepSpeed's own, nothing is
patched for others, and `isinstance(engine, DeepSpeedEngine)` holds.
"""

from __future__ import annotations

from typing import Any

import torch
from deepspeed.runtime.engine import DeepSpeedEngine

from ds_accum.config.block import DSAccumBlock
from ds_accum.engine import deepspeed_private as private
from ds_accum.engine.banner import announce
from ds_accum.engine.carriers import carrier_of
from ds_accum.engine.counting import TokenCounter, UserCounter
from ds_accum.engine.event_sources import updates_a_step, watch_events
from ds_accum.engine.events import EventLog
from ds_accum.engine.guards.clipping import watch_clipping
from ds_accum.engine.guards.hanging import watch_hangs
from ds_accum.engine.guards.leaving import watch_exit
from ds_accum.engine.refusals import refuse_unsupported
from ds_accum.engine.state import EngineState
from ds_accum.engine.step_log import StepLog
from ds_accum.engine.token_weighted import TokenWeightedEngine
from ds_accum.engine.window import AccumulationWindow

__all__ = ["attach"]

_CLASSES: dict[type[DeepSpeedEngine], type[TokenWeightedEngine]] = {DeepSpeedEngine: TokenWeightedEngine}


def attach(engine: Any, settings: DSAccumBlock, token_counter: UserCounter | None) -> None:
    """Makes the engine weight by tokens, in place.

    Raises ConfigError for an engine that can't be weighted exactly; the engine is then what it was.
    """
    refuse_unsupported(engine, settings)
    device = torch.device(engine.device)
    by_token = settings.normalization == "token"
    carrier = carrier_of(engine.optimizer)
    trainable = [item for item in engine.module.named_parameters() if item[1].requires_grad]
    log = StepLog(settings.log) if settings.log is not None and engine.global_rank == 0 else None
    if log is not None:
        log.check_writable()
    state = EngineState(
        settings=settings,
        counter=TokenCounter(settings.counting, engine.module, device, token_counter),
        carrier=carrier,
        group=private.reduction_group(),
        divisor=private.divisor_of(engine),
        device=device,
        needs_look_ahead=by_token and private.uses_muon(engine.optimizer),
        events=EventLog(updates_a_step(engine.optimizer)),
        log=log,
        window=AccumulationWindow(device=device, by_token=by_token),
        parameters=[parameter for _, parameter in trainable],
        parameter_names=[name for name, _ in trainable],
        keeps_no_gradients=private.keeps_no_gradients(engine),
    )
    private.undo_the_step_of_initialization(engine.optimizer)
    engine.__dict__["_accumulation"] = state
    engine.__class__ = _token_weighted(type(engine))
    state.watching = watch_events(engine, engine._on_event)
    watch_clipping(engine)
    watch_exit(engine)
    state.watchdog = watch_hangs(engine)
    announce(engine)


def _token_weighted(stock: type[DeepSpeedEngine]) -> type[TokenWeightedEngine]:
    """The class for an engine of this class: TokenWeightedEngine's methods before its own."""
    if stock not in _CLASSES:
        name = f"TokenWeighted{stock.__name__}"
        _CLASSES[stock] = type(name, (TokenWeightedEngine, stock), {"__module__": __name__})
    return _CLASSES[stock]
