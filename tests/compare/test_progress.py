"""How far a comparison is, as a terminal and as a log file see it."""

from __future__ import annotations

import io

import pytest

from ds_accum.compare import progress as module
from ds_accum.compare.progress import Bar, Lines, Progress, Silent, reporter_for


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that goes on by what it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_a_stream_gets_what_suits_it() -> None:
    assert isinstance(reporter_for(Terminal(), quiet=False), Bar)
    assert isinstance(reporter_for(io.StringIO(), quiet=False), Lines)
    assert isinstance(reporter_for(Terminal(), quiet=True), Silent)
    assert isinstance(reporter_for(None, quiet=False), Silent)


def test_a_bar_is_drawn_anew_and_leaves_nothing(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    bar = Bar(stream)
    bar.show(Progress(share=0.0, doing="parity: starting"))
    clock.now += 30
    bar.show(Progress(share=0.25, doing="parity: zero-0 stock"))
    bar.note("ddp failed: it did")
    clock.now += 90
    bar.show(Progress(share=0.5, doing="memory: ddp"))
    bar.close()
    assert stream.getvalue().split("\r\x1b[2K") == [
        "",
        "[--------------------]   0% parity: starting",
        "[#####---------------]  25% parity: zero-0 stock, about 1 min 30 s left",
        "ddp failed: it did\n",
        "[##########----------]  50% memory: ddp, about 2 min 00 s left",
        "",
    ]


@pytest.mark.parametrize("columns", [20, 40, 61])
def test_a_bar_stays_on_one_line(clock: Clock, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Terminal()
    Bar(stream).show(Progress(share=0.5, doing="parity, communication and speed: " + "x" * 100))
    assert len(stream.getvalue().removeprefix("\r\x1b[2K")) == max(columns - 1, 20)


def test_a_log_gets_a_line_when_something_begins_and_now_and_then(clock: Clock) -> None:
    stream = io.StringIO()
    lines = Lines(stream)
    lines.show(Progress(share=0.0, doing="parity: a"))
    for share in (0.1, 0.2, 0.3, 0.4):
        clock.now += 4
        lines.show(Progress(share=share, doing="parity: b"))
    lines.show(Progress(share=0.5, doing="memory: a"))
    lines.close()
    assert stream.getvalue() == (
        "  0% parity: a\n"
        " 30% parity: b, about 28 s left\n"
        " 50% memory: a, about 16 s left\n"
    )  # fmt: skip
