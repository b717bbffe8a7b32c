"""The order of events in a window: the evidence that gradients are measured and clipped once, when they are complete.

    backward, reduce, backward, reduce, norm, update, zero          two micro-batches of ZeRO-2

Each part of DeepSpeed's step says when it begins. What an optimizer does once per parameter group is one event.
"""

from __future__ import annotations

from typing import Literal

from ds_accum.engine.report import EventCounts

__all__ = ["Event", "EventLog"]

Event = Literal["backward", "reduce", "norm", "update", "zero"]


class EventLog:
    """What has happened since the window began.

    ZeRO-3 drops the parameters' gradients before it updates, too, and a step may end with two calls of `zero_grad`: one
    zeroing is counted where gradients are zero when the step ends.
    """

    def __init__(self) -> None:
        self._events: list[Event] = []

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything so far, in order."""
        return tuple(self._events)

    def add(self, event: Event) -> None:
        """Notes an event. Repeated updates are one: an optimizer's step is taken once per parameter group."""
        if event == "update" and self._events and self._events[-1] == "update":
            return
        self._events.append(event)

    def clear(self) -> None:
        """Begins a new window."""
        self._events.clear()

    def counts(self) -> EventCounts:
        """How often each event happened."""
        return EventCounts(
            backwards=self._events.count("backward"),
            reductions=self._events.count("reduce"),
            norms=self._events.count("norm"),
            updates=self._events.count("update"),
            zeroings=int(bool(self._events) and self._events[-1] == "zero"),
        )
