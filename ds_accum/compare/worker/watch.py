"""Which part of a window runs now, and how long each took: engines say it, what measures listens."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

import torch

from ds_accum.compare.result import Moment

__all__ = ["Phase", "Watch"]

Phase = Literal["forward", "backward", "update"]


class Watch:
    """Follows one window of one engine.

    Times are on the host's clock. On CUDA each change of phase waits for the device, so that a phase pays for its own
    kernels; nothing else would tell them apart.
    """

    def __init__(self, device: torch.device, *, before_update: Callable[[], None] | None = None) -> None:
        self.seconds: dict[Phase, float] = {"forward": 0.0, "backward": 0.0, "update": 0.0}
        self.moment: Moment = "micro-batch"
        self._device = device
        self._before_update = before_update
        self._phase: Phase | None = None
        self._since = 0.0

    def enter(self, phase: Phase, *, boundary: bool) -> None:
        """From now on it is this phase of a micro-batch; `boundary` says that it is the window's last one."""
        self.leave()
        if not boundary:
            self.moment = "micro-batch"
        elif phase != "update":
            self.moment = "boundary"
        else:
            self.moment = "step"
            if self._before_update is not None:
                self._before_update()
        self._phase, self._since = phase, time.perf_counter()

    def leave(self) -> None:
        """The phase is over."""
        if self._phase is not None:
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
            self.seconds[self._phase] += time.perf_counter() - self._since
        self._phase = None
