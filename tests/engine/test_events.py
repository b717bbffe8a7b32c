"""The order of events in a window, as evidence."""

from __future__ import annotations

from ds_accum.engine.events import EventLog
from ds_accum.engine.report import EventCounts


def test_events_are_kept_in_order_and_counted() -> None:
    log = EventLog()
    for event in ("backward", "reduce", "backward", "reduce", "norm", "update", "zero"):
        log.add(event)  # type: ignore[arg-type]
    assert log.events == ("backward", "reduce", "backward", "reduce", "norm", "update", "zero")
    assert log.counts() == EventCounts(backwards=2, reductions=2, norms=1, updates=1, zeroings=1)


def test_an_update_of_several_parameter_groups_is_one() -> None:
    log = EventLog()
    for _ in range(3):
        log.add("update")
    assert log.events == ("update",)


def test_an_update_after_something_else_is_another() -> None:
    log = EventLog()
    for event in ("update", "zero", "update"):
        log.add(event)  # type: ignore[arg-type]
    assert log.counts().updates == 2


def test_a_second_norm_is_not_hidden() -> None:
    log = EventLog()
    log.add("norm")
    log.add("norm")
    assert log.counts().norms == 2


def test_a_new_window_begins_empty() -> None:
    log = EventLog()
    log.add("backward")
    log.clear()
    assert log.events == () and log.counts() == EventCounts(backwards=0, reductions=0, norms=0, updates=0, zeroings=0)
