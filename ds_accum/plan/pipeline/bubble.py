"""The share of a pipeline's time in which its stages wait, by formula, and the micro-batches that keep it small.

For p equal stages, m micro-batches, v chunks a stage, transfers that take no time (Narayanan et al. 2021, arXiv
2104.04473, sections 2.2.1 and 2.2.2), with a stage's forward f and backward b of one micro-batch:

    computing   = m (f + b)
    waiting     = (p - 1) (f + b) / v
    share       = waiting / (computing + waiting) = (p - 1) / (v m + p - 1)
    overhead    = waiting / computing             = (p - 1) / (v m)
    share <= x    where    m >= (p - 1) (1 - x) / (v x)

That is gpipe, 1f1b (v = 1) and interleaved. Where the backward is the gradient of the input i and then that of the
weights w, the wait of the others is

    zero-bubble     (p - 1) max(f, i, f + i - w) / v    with m >= p
    zero-bubble-v   (p - 1) f / 2                       with m >= 2p - 1 and f = i = w: all of it at the boundary
    dualpipev       (p - 1) f                           with f = i = w

The first is that of ZB-H1 in Qi et al. 2023 (arXiv 2401.10241) where w is at most f and i; the last is what DeepSeek-AI
states in the DualPipe repository, (PP / 2 - 1) (F&B + B - 3W), in the chunks of half a stage that F, B and W are there.
For other times their orders are simulated.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from ds_accum.batch.divisibility import nearest_multiples
from ds_accum.batch.wording import require_integer
from ds_accum.errors import UsageError
from ds_accum.plan.pipeline.shape import PipelineShape
from ds_accum.plan.pipeline.times import Number, StageTimes, exact

__all__ = ["bubble_overhead", "bubble_share", "share_limit", "smallest_micro_batches", "waiting_time"]


def bubble_share(stages: int, micro_batches: int, virtual_stages: int = 1) -> Fraction:
    """(p - 1) / (v m + p - 1): the part of all stages' time in which they wait. Raises UsageError below 1."""
    _require_sizes(stages, micro_batches, virtual_stages)
    return Fraction(stages - 1, virtual_stages * micro_batches + stages - 1)


def bubble_overhead(stages: int, micro_batches: int, virtual_stages: int = 1) -> Fraction:
    """(p - 1) / (v m): the time waited per time computed. Raises UsageError below 1."""
    _require_sizes(stages, micro_batches, virtual_stages)
    return Fraction(stages - 1, virtual_stages * micro_batches)


def smallest_micro_batches(stages: int, max_bubble: Number, virtual_stages: int = 1) -> int:
    """The fewest micro-batches whose bubble share is at most `max_bubble`; with chunks a multiple of the stages.

    Raises UsageError where no number is enough.
    """
    _require_sizes(stages, 1, virtual_stages)
    most = share_limit(max_bubble)
    if stages == 1 or most == 1:
        return 1 if virtual_stages == 1 else stages
    if most == 0:
        raise UsageError(
            f"{stages} stages wait (p - 1) / (v m + p - 1) of their time, which is above 0 for every m",
            remedy="allow a share above 0, such as 0.05",
        )
    least = max(1, ceil((stages - 1) * (1 - most) / (virtual_stages * most)))
    if virtual_stages > 1 and least % stages:
        return nearest_multiples(least, stages).above or least
    return least


def waiting_time(shape: PipelineShape, times: StageTimes) -> Fraction | None:
    """What every stage waits in one accumulation window, by formula; None where there is none for these times."""
    if not times.are_equal:
        return None
    p, m, v = shape.stages, shape.micro_batches, shape.virtual_stages
    forward, backward = times.forward[0], times.backward[0]
    weight = backward * times.weight_share
    of_input = backward - weight
    if shape.schedule in ("gpipe", "1f1b", "interleaved"):
        return (p - 1) * (forward + backward) / v
    if shape.schedule == "zero-bubble":
        return (p - 1) * max(forward, of_input, forward + of_input - weight) / v if m >= p else None
    if not forward == of_input == weight:
        return None
    if shape.schedule == "dualpipev":
        return (p - 1) * forward
    return (p - 1) * forward / 2 if m >= 2 * p - 1 else None


def share_limit(max_bubble: Number) -> Fraction:
    """A greatest share as a fraction from 0 to 1. Raises UsageError where it is none."""
    most = exact(max_bubble, name="the greatest bubble share", zero=True, remedy="give 0, or a share such as 0.05")
    if most > 1:
        raise UsageError(
            f"the greatest bubble share must be between 0 and 1, not {float(most):g}",
            remedy=f"{float(most):g} % is {float(most) / 100:g}" if most <= 100 else "0.15 is 15 %",
        )
    return most


def _require_sizes(stages: int, micro_batches: int, virtual_stages: int) -> None:
    for name, size in (("stages", stages), ("micro-batches", micro_batches), ("virtual stages", virtual_stages)):
        require_integer(size, name=name, error=UsageError)
