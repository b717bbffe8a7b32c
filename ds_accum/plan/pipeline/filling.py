"""The fewest micro-batches that keep a pipeline's bubble below a given share, whatever its schedule and its times.

A stage s that computes w_s a micro-batch can't begin before its first input is there (h_s) nor be the last to end (its
last gradient has still to pass the stages before it, t_s), so that for every order of the instructions

    step time >= m w_s + h_s + t_s    and    share >= 1 - m sum(w) / (p (m w_s + h_s + t_s))

Solved for m this gives a number below which no micro-batches are enough. It is the answer itself for 1f1b and
interleaved with equal stages, and near it for the others: the legal numbers from there on are tried one by one. With m
without end the share is at least 1 - mean(w) / max(w), which no micro-batches undercut.

In gpipe forwards and backwards are one row of machines after the other, with forwards f, backwards b and transfers c:

    step time = sum(f) + (m - 1) max(f) + sum(b) + (m - 1) max(b) + 2 (p - 1) c
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil

from ds_accum.batch.wording import show
from ds_accum.errors import UsageError
from ds_accum.plan.pipeline.bubble import share_limit, waiting_time
from ds_accum.plan.pipeline.shape import PipelineShape
from ds_accum.plan.pipeline.simulation import MAX_INSTRUCTIONS, simulate_pipeline
from ds_accum.plan.pipeline.times import Number, StageTimes, stage_times

__all__ = ["fill_pipeline"]


def fill_pipeline(
    *,
    schedule: str,
    stages: int,
    max_bubble: Number,
    virtual_stages: int = 1,
    times: StageTimes | None = None,
) -> PipelineShape:
    """The pipeline with the fewest micro-batches whose bubble share is at most `max_bubble`.

    Raises UsageError where no number is enough, or none was found among those that can be simulated in a few seconds.
    """
    times = stage_times(stages) if times is None else times
    most = share_limit(max_bubble)
    # 2p is legal for every schedule; from one legal number to the next it is p, or 1.
    shape = PipelineShape(schedule=schedule, stages=stages, micro_batches=2 * stages, virtual_stages=virtual_stages)
    step = stages if shape.needs_groups else 1
    first = 2 * stages if shape.schedule == "dualpipev" else step
    micro_batches = max(first, _least(shape, times, most))
    spent = 0
    while True:
        micro_batches = -(-micro_batches // step) * step
        shape = replace(shape, micro_batches=micro_batches)
        waiting = waiting_time(shape, times)
        if waiting is not None:
            enough = _enough(waiting, times.per_micro_batch[0], most)
            if micro_batches >= enough:
                return shape
            micro_batches = enough
            continue
        spent += shape.num_instructions
        if spent > MAX_INSTRUCTIONS:
            raise UsageError(
                f"no number of micro-batches below {show(micro_batches)} brings the bubble of {shape.schedule} on"
                f" {stages} stages to {float(most):g}, and more are not tried",
                remedy="allow a larger share",
            )
        if simulate_pipeline(shape, times).bubble_share <= most:
            return shape
        micro_batches += step


def _enough(waiting: Fraction, computing: Fraction, most: Fraction) -> int:
    """The least m with waiting / (waiting + m computing) <= most, which is above 0 if anything waits."""
    return 1 if waiting == 0 else ceil(waiting * (1 - most) / (most * computing))


def _least(shape: PipelineShape, times: StageTimes, most: Fraction) -> int:
    """A number of micro-batches below which the share is above `most`. Raises UsageError where it always is."""
    computing = times.per_micro_batch
    p, total = shape.stages, sum(computing)
    if most == 1 or p == 1:
        return 1
    if shape.schedule == "gpipe":
        pace = max(times.forward) + max(times.backward)
        bounds = [(pace, total + 2 * (p - 1) * times.transfer - pace)]
    else:
        bounds = [(computing[stage], _outside(shape, times, stage)) for stage in range(p)]
    least = 1
    for pace, once in bounds:  # step time >= m pace + once
        slope = total - (1 - most) * p * pace
        wait = (1 - most) * p * once
        if slope > 0:
            least = max(least, ceil(wait / slope))
        elif slope < 0 or wait > 0:
            raise _never(shape, times, max(pace for pace, _ in bounds), most)
    return least


def _outside(shape: PipelineShape, times: StageTimes, stage: int) -> Fraction:
    """h + t: what has to happen before a stage can begin and after it has ended, at the least."""
    before = shape.number_of(stage, 0)  # all of these lie on stages of their own
    head = sum(times.forward[:before], Fraction(0)) / shape.virtual_stages + before * times.transfer
    if shape.kind.splits_backward:
        return head  # the gradient of the weights can still be due when everything else is done
    return head + sum(times.backward[:before], Fraction(0)) / shape.virtual_stages + before * times.transfer


def _never(shape: PipelineShape, times: StageTimes, pace: Fraction, most: Fraction) -> UsageError:
    """That no number of micro-batches is enough, where each adds `pace` to the step."""
    computing = times.per_micro_batch
    floor = 1 - sum(computing) / (shape.stages * pace)
    if floor == 0:
        return UsageError(
            f"{shape.stages} stages always wait at the start and at the end: no number of micro-batches brings the"
            f" bubble to {float(most):g}",
            remedy="allow a share above 0, such as 0.05",
        )
    slowest = max(range(shape.stages), key=lambda stage: computing[stage])
    return UsageError(
        f"the bubble stays above {float(floor):.3g} with any number of micro-batches, since the others wait for stage"
        f" {slowest}, and can't be {float(most):g}",
        remedy=f"give stage {slowest} fewer layers, or allow a larger share",
    )
