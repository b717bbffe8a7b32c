"""How far a comparison is: a bar with the time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from typing import Protocol, TextIO

__all__ = ["Bar", "Lines", "Progress", "Reporter", "Silent", "reporter_for"]

_LINE_EVERY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A moment of a comparison: `share` of the work that is done, from 0 to 1, and what is being done."""

    share: float
    doing: str


class Reporter(Protocol):
    """Is told where a comparison is."""

    def show(self, progress: Progress) -> None:
        """Where it is."""

    def note(self, text: str) -> None:
        """Something that should stay to be read."""

    def close(self) -> None:
        """The end, however it came."""


class Silent:
    """Says nothing."""

    def show(self, progress: Progress) -> None: ...

    def note(self, text: str) -> None: ...

    def close(self) -> None: ...


class Lines:
    """One line when something else begins, and one every few seconds."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._started = self._last = time.monotonic()
        self._doing = ""

    def show(self, progress: Progress) -> None:
        now = time.monotonic()
        task = progress.doing.partition(":")[0]
        if task != self._doing or now - self._last >= _LINE_EVERY_S:
            self._doing, self._last = task, now
            self._stream.write(f"{progress.share:4.0%} {progress.doing}{_left(now - self._started, progress.share)}\n")
            self._stream.flush()

    def note(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def close(self) -> None: ...


class Bar:
    """One line that is drawn anew."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._started = time.monotonic()
        self._drawn = False

    def show(self, progress: Progress) -> None:
        columns = max(20, shutil.get_terminal_size().columns - 1)
        cells = 20 if columns >= 60 else 8
        full = round(cells * progress.share)
        left = _left(time.monotonic() - self._started, progress.share)
        line = f"[{'#' * full}{'-' * (cells - full)}] {progress.share:4.0%} {progress.doing}{left}"
        self._stream.write(f"\r\x1b[2K{line[:columns]}")
        self._stream.flush()
        self._drawn = True

    def note(self, text: str) -> None:
        self.close()
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def close(self) -> None:
        if self._drawn:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()
            self._drawn = False


def reporter_for(stream: TextIO | None, *, quiet: bool) -> Reporter:
    """What suits a stream: nothing for none."""
    if quiet or stream is None:
        return Silent()
    return Bar(stream) if stream.isatty() else Lines(stream)


def _left(elapsed_s: float, share: float) -> str:
    """The time left, once enough is done to tell."""
    if not 0.05 <= share < 1:
        return ""
    seconds = round(elapsed_s * (1 - share) / share)
    return f", about {seconds // 60} min {seconds % 60:02} s left" if seconds >= 60 else f", about {seconds} s left"
