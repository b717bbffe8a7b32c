"""The log of a window's events: as many updates as a step has are one, one too many is another."""

from __future__ import annotations

import pytest

from ds_accum.engine.events import Event, EventLog
from ds_accum.engine.report import EventCounts

STEP: tuple[Event, ...] = ("backward", "backward", "reduce", "norm")


def _log(*events: Event, updates_a_step: int = 1) -> EventLog:
    log = EventLog(updates_a_step)
    for event in events:
        log.add(event)
    return log


def test_the_events_of_a_step_are_counted_in_order() -> None:
    log = _log(*STEP, "update", "zero")
    assert log.events == (*STEP, "update", "zero")
    assert log.counts() == EventCounts(backwards=2, reductions=1, norms=1, updates=1, zeroings=1)


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_an_update_in_parts_is_one_and_a_second_one_is_told(parts: int) -> None:
    once = _log(*STEP, *["update"] * parts, "zero", updates_a_step=parts)
    twice = _log(*STEP, *["update"] * (2 * parts), "zero", updates_a_step=parts)
    begun = _log(*STEP, *["update"] * (parts + 1), "zero", updates_a_step=parts)
    assert [log.counts().updates for log in (once, twice, begun)] == [1, 2, 2]


def test_a_cleared_log_begins_a_new_step() -> None:
    log = _log(*STEP, "update", updates_a_step=2)
    log.clear()
    log.add("update")
    log.add("update")
    assert log.counts().updates == 1


def test_gradients_count_as_zeroed_where_they_are_zero_at_the_end() -> None:
    assert _log("zero", "update").counts().zeroings == 0
    assert _log("update", "zero", "zero").counts().zeroings == 1
