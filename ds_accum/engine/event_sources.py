"""Events of a step, as DeepSpeed's optimizer wrappers come to them: each says what it does before it does it.

What is wrapped are attributes of one instance, each once, until the engine is destroyed; what DeepSpeed does inside is
left as it is.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any

from ds_accum.engine import deepspeed_private as private
from ds_accum.engine.events import Event
from ds_accum.engine.overriding import overriding

__all__ = ["updates_a_step", "watch_events"]


def watch_events(engine: Any, on_event: Callable[[Event, str], None]) -> ExitStack:
    """Has the optimizer say, before it does it: the event, and the call that it is. `on_event` is a bound method.

    Returns what ends it; it ends as well when nobody holds the engine any more, whose optimizer may live on.
    """
    optimizer, watching, method = engine.optimizer, ExitStack(), weakref.WeakMethod(on_event)

    def say(event: Event, call: str) -> None:
        listening = method()
        if listening is not None:
            listening(event, call)

    for event, name in _EVENTS[private.kind_of(optimizer)]:
        if hasattr(optimizer, name):
            saying = _saying(say, event, name, getattr(optimizer, name))
            watching.enter_context(overriding(optimizer, **{name: saying}))
    steps_under_way: list[str] = []
    if private.kind_of(optimizer) != "torch":
        # Before a wrapper touches its gradients, which it does long before the optimizer inside steps.
        saying = _saying(say, "step", "step", optimizer.step, steps_under_way)
        watching.enter_context(overriding(optimizer, step=saying))

    def update(*_: Any) -> None:
        if not steps_under_way:
            say("step", "optimizer.step()")
        say("update", "optimizer.step()")

    # What the loop may hold; what a wrapper steps, which is another one for Adagrad; and ZeRO-3 with a part of its
    # optimizer offloaded has one for either side.
    inside = getattr(optimizer, "optimizer", None)
    stepped = (
        getattr(engine, "basic_optimizer", None) or optimizer,
        inside,
        getattr(optimizer, "backup_optimizer", None),
    )
    for one in {id(one): one for one in stepped}.values():
        if one is not None and hasattr(one, "register_step_pre_hook"):
            watching.callback(one.register_step_pre_hook(update).remove)
    return watching


def updates_a_step(optimizer: Any) -> int:
    """How often the optimizer inside a wrapper is stepped for one update: ZeRO does it for each part of its groups."""
    kind = private.kind_of(optimizer)
    if kind == "DeepSpeedZeroOptimizer":
        return len(optimizer.bit16_groups)
    return len(optimizer.fp16_groups) if kind == "DeepSpeedZeroOptimizer_Stage3" else 1


_EVENTS: dict[private.OptimizerKind, tuple[tuple[Event, str], ...]] = {
    "DeepSpeedZeroOptimizer": (("norm", "scaled_global_norm"), ("zero", "zero_grad")),
    "DeepSpeedZeroOptimizer_Stage3": (("norm", "_get_norm_groups"), ("zero", "zero_grad")),
    "FP16_Optimizer": (("norm", "unscale_and_clip_grads"), ("zero", "zero_grad")),
    "FP16_UnfusedOptimizer": (("norm", "unscale_and_clip_grads"), ("zero", "zero_grad")),
    "BF16_Optimizer": (("norm", "get_grads_for_norm"), ("zero", "zero_grad")),
    "torch": (("zero", "zero_grad"),),
}


def _saying(
    on_event: Callable[[Event, str], None], event: Event, name: str, function: Any, under_way: list[str] | None = None
) -> Any:
    @wraps(function)
    def saying(*arguments: Any, **options: Any) -> Any:
        # BF16_Optimizer collects the gradients twice, to measure them and to clip them.
        if not options.get("for_clipping", False):
            on_event(event, f"optimizer.{name}()")
        if under_way is None:
            return function(*arguments, **options)
        under_way.append(name)
        try:
            return function(*arguments, **options)
        finally:
            under_way.pop()

    return saying
