"""The order of events in a window: the evidence that gradients are measured and clipped once, when they are complete.

    backward, reduce, backward, reduce, norm, update, zero          two micro-batches of ZeRO-2

Each part of DeepSpeed's step says when it begins. What an optimizer does once per parameter group is one event.
"""

from __future__ import annotations

from typing import Literal

from ds_accum.engine.report import EventCounts

__all__ = ["Event", "EventLog"]

Event = Literal["backward", "reduce", "norm", "step", "update", "zero"]
"""All but "step", which comes before whatever an optimizer does in its step, are counted."""


class EventLog:
    """What has happened since the window began.

    `updates_a_step` is how often the optimizer's own step is taken for one update: once a parameter group, or part.

    ZeRO-3 drops the parameters' gradients before it updates, too, and a step may end with two calls of `zero_grad`: one
    zeroing is counted where gradients are zero when the step ends.
    """

    def __init__(self, updates_a_step: int = 1) -> None:
        self._updates_a_step = updates_a_step
        self._updates = 0
        self._events: list[Event] = []

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything so far, in order."""
        return tuple(self._events)

    def add(self, event: Event) -> None:
        """Notes an event. As many updates as a step has are one."""
        if event == "update":
            first_part = self._updates % self._updates_a_step == 0
            self._updates += 1
            if not first_part and self._events and self._events[-1] == "update":
                return
        self._events.append(event)

    def clear(self) -> None:
        """Begins a new window."""
        self._events.clear()
        self._updates = 0

    def counts(self) -> EventCounts:
        """How often each event happened."""
        return EventCounts(
            backwards=self._events.count("backward"),
            reductions=self._events.count("reduce"),
            norms=self._events.count("norm"),
            updates=self._events.count("update"),
            zeroings=int(bool(self._events) and self._events[-1] == "zero"),
        )
