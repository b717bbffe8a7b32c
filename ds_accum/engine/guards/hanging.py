"""Hangs: a rank that waits for another that does not come, named before the job is killed by somebody else's timeout.

Each rank notes, in one attribute, which call of the engine it is in. A thread writes that to the job's store once a
second and looks how long this rank has been in the same call: after `timeout_s` it says where every rank is, shows
where the main thread stands, and ends the process. Time outside the engine (evaluation, data, saving) never counts.
When a collective fails because a rank has died, the same notes say which one it was.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["EXIT_STATUS", "Watchdog", "watch_hangs"]

EXIT_STATUS = 85
"""With which a rank ends that has waited for too long."""

_BEAT_S = 1.0
_SILENT_S = 5.0
"""A rank that has written nothing for so long is gone."""

_numbers = iter(range(1_000_000))


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a rank is: the call it is in, or None outside the engine, and since when (monotonic seconds)."""

    step: int
    micro_batch: int
    call: str | None
    since: float


class Watchdog:
    """Watches one engine from a thread of its own. `store` is a client of the job's store that nobody else uses."""

    def __init__(self, store: Any, *, rank: int, ranks: int, timeout_s: float, key: str) -> None:
        self._store, self._rank, self._ranks, self._timeout_s, self._key = store, rank, ranks, timeout_s, key
        self.progress = Progress(0, 0, None, time.monotonic())
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ds-accum watchdog", daemon=True)

    def start(self) -> None:
        """Begins to watch."""
        self._write()
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; a rank that stops says so, and is not taken for dead."""
        if not self._stopped.is_set():
            self._stopped.set()
            with suppress(RuntimeError):
                self._store.set(f"{self._key}/{self._rank}", "left|0|0|0")

    @contextmanager
    def inside(self, call: str, *, step: int, micro_batch: int) -> Iterator[None]:
        """Around a call of the engine. Nested calls count as the outermost."""
        if self.progress.call is not None:
            yield
            return
        self.progress = Progress(step, micro_batch, call, time.monotonic())
        try:
            yield
        except RuntimeError as error:
            self._explain(error)
            raise
        finally:
            self.progress = Progress(step, micro_batch, None, time.monotonic())

    def _watch(self) -> None:
        beat = min(_BEAT_S, self._timeout_s / 4)
        while not self._stopped.wait(beat):
            try:
                self._write()
            except RuntimeError:
                return  # the store went with the rank that keeps it: the main thread hears of it in its collective
            progress = self.progress
            waited = time.monotonic() - progress.since
            if progress.call is not None and waited > self._timeout_s:
                self._abort(progress, waited)

    def _write(self) -> None:
        progress = self.progress
        parts = (progress.call or "outside the engine", str(progress.step), str(progress.micro_batch))
        age = time.monotonic() - progress.since
        self._store.set(f"{self._key}/{self._rank}", "|".join((*parts, f"{time.time():.3f}", f"{age:.1f}")))

    def _abort(self, progress: Progress, waited: float) -> None:
        _say(
            f"rank {self._rank} has been in {progress.call} for {waited:.0f} s (step {progress.step}, micro-batch "
            f"{progress.micro_batch}), longer than ds_accum.timeout_s = {self._timeout_s:g}; the ranks are at:",
            *self.whereabouts(),
            "it ends now; its main thread stands here:",
        )
        _show_main_thread()
        os._exit(EXIT_STATUS)

    def _explain(self, error: RuntimeError) -> None:
        """Says which rank is gone, where an error is about a collective that lost one."""
        said = str(error).lower()
        if not any(word in said for word in ("connection", "peer", "timed out", "timeout", "socket", "recv", "nccl")):
            return
        # A rank that has just died is told from a slow one by its silence.
        deadline = time.monotonic() + _SILENT_S + 2 * _BEAT_S
        gone: list[str] = []
        while not gone and time.monotonic() < deadline:
            try:
                gone = [line for line in self.whereabouts() if "silent" in line]
            except RuntimeError:
                gone = ["  rank 0, which keeps the store, does not answer"]
            time.sleep(0 if gone else _BEAT_S / 2)
        _say(f"rank {self._rank} lost its peers ({error}); of the others:", *(gone or ["  every rank still answers"]))

    def whereabouts(self) -> list[str]:
        """A line a rank, those that are behind first."""
        lines: list[tuple[tuple[int, int], str]] = []
        for rank in range(self._ranks):
            key = f"{self._key}/{rank}"
            if not self._store.check([key]):
                lines.append(((-1, -1), f"  rank {rank} never began"))
                continue
            call, step, micro_batch, written, *age = self._store.get(key).decode().split("|")
            silent = max(time.time() - float(written), 0.0)  # it is written to the millisecond
            if call == "left":
                lines.append(((-1, -1), f"  rank {rank} has left"))
                continue
            text = f"  rank {rank}: step {step}, micro-batch {micro_batch}, {call}"
            if age:
                text += f" for {float(age[0]) + silent:.0f} s"
            if silent > _SILENT_S:
                text += f", silent for {silent:.0f} s: its process is gone or stopped"
            lines.append(((int(step), int(micro_batch)), text))
        return [text for _, text in sorted(lines, key=lambda line: line[0])]


def watch_hangs(engine: TokenWeightedEngine) -> Watchdog | None:
    """A watchdog for the engine, running; None for a single rank, and where the job's store can't be had."""
    from torch import distributed

    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return None
    try:
        # A client of its own: the main thread may be waiting inside its one.
        store: Any = distributed.distributed_c10d._get_default_store()
        store = store.clone()
    except (AttributeError, RuntimeError):
        return None
    watchdog = Watchdog(
        store,
        rank=distributed.get_rank(),
        ranks=distributed.get_world_size(),
        timeout_s=engine._accumulation.settings.timeout_s,
        key=f"ds_accum/{next(_numbers)}",
    )
    watchdog.start()
    weakref.finalize(engine, watchdog.stop)
    return watchdog


def _say(first: str, *others: str) -> None:
    sys.stderr.write("\n".join((f"ds-accum: {first}", *others)) + "\n")
    sys.stderr.flush()


def _show_main_thread() -> None:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if frame is not None:
        traceback.print_stack(frame, file=sys.stderr)
        sys.stderr.flush()
