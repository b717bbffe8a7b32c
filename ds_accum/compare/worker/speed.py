"""How long the steps of a variant took: on the slowest rank, without the windows that warm up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from ds_accum.compare.result import Speed
from ds_accum.compare.worker.ranks import Ranks
from ds_accum.compare.worker.watch import Phase

__all__ = ["WindowTimes", "speed_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTimes:
    """One window, in seconds, and the tokens of its global batch."""

    forward: float
    backward: float
    update: float
    whole: float
    num_tokens: float

    @classmethod
    def slowest(cls, seconds: Mapping[Phase, float], num_tokens: float, ranks: Ranks) -> WindowTimes:
        """The times of the rank that took longest, of each phase and of the whole. All ranks call it together."""
        own = [seconds["forward"], seconds["backward"], seconds["update"]]
        forward, backward, update, whole = ranks.max([*own, sum(own)])
        return cls(forward=forward, backward=backward, update=update, whole=whole, num_tokens=num_tokens)


def speed_of(times: Sequence[WindowTimes], waited: Sequence[float]) -> Speed:
    """Of the windows that count, and of the seconds that collectives took in some that followed.

    The share is that of collectives that are waited for one by one: an engine that overlaps them hides part of it.
    """
    step_seconds = tuple(window.whole for window in times)
    typical = median(step_seconds)
    return Speed(
        step_seconds=step_seconds,
        forward_seconds=median(window.forward for window in times),
        backward_seconds=median(window.backward for window in times),
        update_seconds=median(window.update for window in times),
        communication_share=min(1.0, median(waited) / typical) if waited and typical else None,
        tokens_per_second=sum(window.num_tokens for window in times) / sum(step_seconds),
    )
