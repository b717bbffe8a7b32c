"""Hangs: a rank that waits for another that does not come, named before the job is killed by somebody else's timeout.

Each rank notes, in one attribute, which call of the engine it is in. A thread writes that to the job's store once a
second and looks how long this rank has been in the same call: after `timeout_s` it says where every rank is, shows
where the main thread stands, and ends the process. Time outside the engine (evaluation, data) never counts, nor do
checkpoints. When a collective fails because a rank has died, the same notes say which one it was: the first rank that
knows tells the others, whose own collectives may fail only when that one has ended as well.

Clocks of several machines differ, so none is compared with another: a rank is silent for as long as the one that looks
has seen no change in what it writes, by the clock of the one that looks.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
import traceback
import weakref
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ds_accum.config.block import DSAccumBlock

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["EXIT_STATUS", "Watchdog", "begin_bare_backward", "end_bare_backward", "watch_hangs", "watched"]

EXIT_STATUS = 85
"""With which a rank ends that has waited for too long."""

_BEAT_S = 1.0
_SILENT_S = 5.0
"""A rank that has been seen to write nothing for so long is gone."""

_LOST = ("connection", "peer", "broken pipe", "timed out", "timeout", "socket", "recv", "nccl")
"""What is in the errors of collectives that have lost a rank."""

_STORE_IS_GONE = "  rank 0 does not answer: the job's store is gone, which it keeps unless the launcher does"

_numbers = itertools.count()


class Progress(NamedTuple):
    """Where a rank is: the call it is in, or None outside the engine, and since when (monotonic seconds)."""

    step: int
    micro_batch: int
    call: str | None
    since: float
    limited: bool = True
    """Whether the call may take `timeout_s` at most."""

    unbounded: bool = False
    """Whether only the engine's hooks know where the call ends, which an error may keep them from."""


class Watchdog:
    """Watches one engine from a thread of its own. `store` is a client of the job's store that nobody else uses."""

    def __init__(self, store: Any, *, rank: int, ranks: int, timeout_s: float, key: str) -> None:
        self._store, self._rank, self._ranks, self._timeout_s, self._key = store, rank, ranks, timeout_s, key
        self.progress = Progress(0, 0, None, time.monotonic())
        self._beats = itertools.count()
        self._seen: dict[int, tuple[bytes, float]] = {}
        """What each rank had written when it was last looked at, and when that was seen first (monotonic seconds)."""
        self._told: list[str] = []
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
                self._store.set(f"{self._key}/{self._rank}", "left|0|0|0|0")

    def inside(self, call: str, *, step: int, micro_batch: int, limited: bool = True) -> AbstractContextManager[object]:
        """Around a call of the engine, that may take `timeout_s` if limited. Nested calls count as the outermost."""
        if self.progress.call is not None and not self.progress.unbounded:
            return nullcontext()
        self.progress = Progress(step, micro_batch, call, time.monotonic(), limited)
        return self

    def __enter__(self) -> Watchdog:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """Ends what `inside` began."""
        try:
            if isinstance(error, RuntimeError):
                self._explain(error)
        finally:
            self._leave()

    def begin(self, call: str, *, step: int, micro_batch: int) -> None:
        """Begins a call that the engine does not make itself, which `inside` or `end` ends."""
        if self.progress.call is None or self.progress.unbounded:
            self.progress = Progress(step, micro_batch, call, time.monotonic(), unbounded=True)

    def end(self) -> None:
        """Ends what `begin` began."""
        if self.progress.unbounded:
            self._leave()

    def _leave(self) -> None:
        self.progress = Progress(self.progress.step, self.progress.micro_batch, None, time.monotonic())

    def _watch(self) -> None:
        beat = min(_BEAT_S, self._timeout_s / 4)
        has_store, looked_at = True, None
        while not self._stopped.wait(beat):
            if has_store:
                try:
                    self._write()
                    self._hear()
                except RuntimeError:
                    has_store = False  # it went with the rank that keeps it
            progress = self.progress
            if progress.call is None or not progress.limited:
                continue
            waited = time.monotonic() - progress.since
            if waited > self._timeout_s:
                self._abort(progress, waited)
            elif waited > self._timeout_s - _SILENT_S - 3 * beat and looked_at is not progress:
                # By the time that it aborts, silence is told from a first look.
                looked_at = progress
                self._whereabouts_if_known()

    def _write(self) -> None:
        progress = self.progress
        parts = (progress.call or "outside the engine", str(progress.step), str(progress.micro_batch))
        age = time.monotonic() - progress.since
        # Each is another, also where nothing else has changed.
        self._store.set(f"{self._key}/{self._rank}", "|".join((*parts, str(next(self._beats)), f"{age:.1f}")))

    def _abort(self, progress: Progress, waited: float) -> None:
        lines = self._whereabouts_if_known()
        _say(
            f"rank {self._rank} has been in {progress.call} for {waited:.0f} s (step {progress.step}, micro-batch "
            f"{progress.micro_batch}), longer than ds_accum.timeout_s = {self._timeout_s:g}; the ranks are at:",
            *lines,
            "it ends now; its main thread stands here:",
        )
        _show_main_thread()
        self._tell(lines)
        os._exit(EXIT_STATUS)

    def _explain(self, error: RuntimeError) -> None:
        """Says which rank is gone, where an error is about a collective that lost one."""
        if not _is_of_a_collective(error):
            return
        # A rank that has died is told from a slow one by its silence, which takes a while to be seen.
        deadline = time.monotonic() + _SILENT_S + 2 * _BEAT_S
        while not self._told and time.monotonic() < deadline:
            gone = [line for line in self._whereabouts_if_known() if "silent" in line or line == _STORE_IS_GONE]
            if gone:
                self._tell(gone)
            else:
                time.sleep(_BEAT_S / 2)
        lines = self._told or self._whereabouts_if_known()
        _say(f"rank {self._rank} lost its peers ({error}); of the others:", *lines)

    def _tell(self, lines: list[str]) -> None:
        """Lets the others know where the ranks are, unless one has told."""
        if self._told:
            return
        self._told = lines
        with suppress(RuntimeError):
            self._store.set(f"{self._key}/told", "\n".join(lines))
            if self._rank == 0:
                time.sleep(2 * _BEAT_S)  # the store goes with this rank: until then they have heard

    def _hear(self) -> None:
        """Remembers what another rank has told."""
        if not self._told and self._store.check([f"{self._key}/told"]):
            self._told = self._store.get(f"{self._key}/told").decode().splitlines()

    def _whereabouts_if_known(self) -> list[str]:
        try:
            return self.whereabouts()
        except RuntimeError:
            return self._told or [_STORE_IS_GONE]

    def whereabouts(self) -> list[str]:
        """A line a rank, those that are behind first. Silence is what two calls have seen between them."""
        lines: list[tuple[tuple[int, int], str]] = []
        for rank, written in enumerate(self._read()):
            if written is None:
                lines.append(((-1, -1), f"  rank {rank} never began"))
                continue
            call, step, micro_batch, _, age = written.decode().split("|")
            if call == "left":
                lines.append(((-1, -1), f"  rank {rank} has left"))
                continue
            silent = self._silence_of(rank, written)
            text = f"  rank {rank}: step {step}, micro-batch {micro_batch}, {call} for {float(age) + silent:.0f} s"
            if silent > _SILENT_S:
                text += f", silent for {silent:.0f} s: its process is gone or stopped"
            lines.append(((int(step), int(micro_batch)), text))
        return [text for _, text in sorted(lines, key=lambda line: line[0])]

    def _read(self) -> list[bytes | None]:
        """What each rank wrote last, None for one that never did; two requests where all did, whatever their number."""
        keys = [f"{self._key}/{rank}" for rank in range(self._ranks)]
        if self._store.check(keys) and self._store.has_extended_api():
            return list(self._store.multi_get(keys))
        return [self._store.get(key) if self._store.check([key]) else None for key in keys]

    def _silence_of(self, rank: int, written: bytes) -> float:
        """For how many seconds a rank is known to have written nothing new."""
        now = time.monotonic()
        before, since = self._seen.get(rank, (b"", now))
        if written != before:
            since = now
        self._seen[rank] = written, since
        return now - since


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
        timeout_s=_limit_s(engine._accumulation.settings),
        key=f"ds_accum/{next(_numbers)}",
    )
    watchdog.start()
    weakref.finalize(engine, watchdog.stop)
    return watchdog


def _limit_s(settings: DSAccumBlock) -> float:
    """`timeout_s`; where the config does not give it, less than DeepSpeed's process groups wait before they fail."""
    from deepspeed.constants import default_pg_timeout

    if "timeout_s" in settings.model_fields_set:
        return settings.timeout_s
    return min(settings.timeout_s, 0.9 * float(default_pg_timeout.total_seconds()))


def watched(engine: TokenWeightedEngine, call: str, *, limited: bool = True) -> AbstractContextManager[object]:
    """A call of the engine in which this rank may wait for others, for no longer than `timeout_s` if limited."""
    state = engine._accumulation
    if state.watchdog is None:
        return nullcontext()
    micro_batch = state.window.micro_batches + (call in ("forward", "backward"))
    return state.watchdog.inside(call, step=engine.global_steps + 1, micro_batch=micro_batch, limited=limited)


def begin_bare_backward(engine: TokenWeightedEngine) -> None:
    """A `loss.backward()` of the training loop waits for others as one of the engine does."""
    state = engine._accumulation
    if state.watchdog is not None:
        step, micro_batch = engine.global_steps + 1, state.window.micro_batches
        state.watchdog.begin("backward", step=step, micro_batch=micro_batch)


def end_bare_backward(engine: TokenWeightedEngine) -> None:
    """After any backward; that of the engine ends by itself."""
    state = engine._accumulation
    if state.watchdog is not None:
        state.watchdog.end()


def _is_of_a_collective(error: RuntimeError) -> bool:
    """Whether an error is what a collective says that has lost a rank: by its type, or its words and who called it.

    gloo raises what any function may raise, and a model may say of its own that a skip connection timed out.
    """
    from torch.distributed import DistError

    said = str(error).lower()
    if not any(word in said for word in _LOST):
        return False
    if isinstance(error, DistError):
        return True
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    module = "" if innermost is None else str(innermost.tb_frame.f_globals.get("__name__", ""))
    return innermost is None or f"{module}.".startswith(("torch.distributed.", "deepspeed.", "ds_accum."))


def _say(first: str, *others: str) -> None:
    sys.stderr.write("\n".join((f"ds-accum: {first}", *others)) + "\n")
    sys.stderr.flush()


def _show_main_thread() -> None:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if frame is not None:
        traceback.print_stack(frame, file=sys.stderr)
        sys.stderr.flush()
