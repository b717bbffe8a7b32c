"""Where to cut a model into stages so that the slowest stage is as fast as it can be.

A cut gives stage s its k_s >= 1 next layers, in order. It then takes

    load_s = factor_s x (the sum of the times of its layers) + fixed_s

per micro-batch: `factor_s` is how slow the stage is, `fixed_s` what it does besides layers (the logits, on the last).
The best cut has the least max(load), which sets the pace of every schedule; of those the most even numbers of layers,
by the sum of their squares, as layers take memory; then the fewest on the first stages, which hold the most
micro-batches. (To relieve a slow stage of more than the pace asks for would fill and drain a little faster, but waste
its GPU and crowd the others'.) Exact: the least maximum by bisection over whole numbers, the rest by dynamic
programming.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from math import lcm

from ds_accum.batch.wording import require_integer, show
from ds_accum.errors import UsageError
from ds_accum.plan.pipeline.times import Number, StageTimes, exact

__all__ = ["MAX_LAYERS", "LayerCut", "best_cut", "even_cut", "move_layers"]

# No published model has more than a few hundred; the search takes a second here.
MAX_LAYERS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCut:
    """`layers[s]` layers on stage s, which then takes `loads[s]` a micro-batch."""

    layers: tuple[int, ...]
    loads: tuple[Fraction, ...]

    @property
    def slowest(self) -> Fraction:
        """The load that sets the pace."""
        return max(self.loads)


def even_cut(num_layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each stage where all layers count the same: the first stages take one more where it doesn't divide.

    As DeepSpeed 0.19.8 does with `partition_method="uniform"` (`partition_uniform` in deepspeed/runtime/utils.py).
    """
    _require_layers(num_layers, stages)
    least, more = divmod(num_layers, stages)
    return tuple(least + (stage < more) for stage in range(stages))


def move_layers(times: StageTimes, layers: Sequence[int], fixed: Mapping[int, Number] | None = None) -> LayerCut:
    """The best cut, if a layer takes on every stage what the layers there take now.

    `layers[s]` layers are on stage s now, which takes `times`; of its forward, `fixed[s]` is not its layers' and stays
    (with the same share of its backward). Raises UsageError where these do not fit together.
    """
    if len(layers) != times.stages:
        raise UsageError(
            f"there are layers of {len(layers)} stages for {times.stages} stages", remedy="give one number for each"
        )
    for stage, count in enumerate(layers):
        require_integer(count, name=f"layers of stage {stage}", error=UsageError)
    shares = fixed_shares(times, fixed)
    loads = times.per_micro_batch
    return best_cut(
        layer_times=(1,) * sum(layers),
        factors=[load * (1 - share) / count for load, share, count in zip(loads, shares, layers, strict=True)],
        fixed=[load * share for load, share in zip(loads, shares, strict=True)],
    )


def fixed_shares(times: StageTimes, fixed: Mapping[int, Number] | None) -> tuple[Fraction, ...]:
    """The part of each stage's time that is not its layers'. Raises UsageError where nothing would be left for them."""
    shares = [Fraction(0)] * times.stages
    for stage, time in (fixed or {}).items():
        if not 0 <= stage < times.stages:
            raise UsageError(
                f"there is no stage {show(stage)} in a pipeline of {times.stages}",
                remedy=f"stages are numbered from 0 to {times.stages - 1}",
            )
        shares[stage] = exact(time, name=f"fixed time of stage {stage}", zero=True) / times.forward[stage]
        if shares[stage] >= 1:
            raise UsageError(
                f"fixed time {float(time):g} of stage {stage} leaves nothing of its forward of"
                f" {float(times.forward[stage]):g} for its layers",
                remedy="give the part of its forward that is not its layers'",
            )
    return tuple(shares)


def best_cut(*, layer_times: Sequence[Number], factors: Sequence[Number], fixed: Sequence[Number]) -> LayerCut:
    """The best cut of layers with these times, in order, over as many stages as there are factors.

    Raises UsageError where there are fewer layers than stages, or too many, or a time is not a positive number.
    """
    stages = len(factors)
    if len(fixed) != stages:
        raise UsageError(
            f"there are {len(fixed)} fixed times for {stages} stages", remedy="give one for each; 0 where there is none"
        )
    _require_layers(len(layer_times), stages)
    costs = [exact(time, name=f"time of layer {layer}") for layer, time in enumerate(layer_times)]
    slow = [exact(factor, name=f"factor of stage {stage}") for stage, factor in enumerate(factors)]
    besides = [exact(time, name=f"fixed time of stage {stage}", zero=True) for stage, time in enumerate(fixed)]
    # Whole numbers: load x units, so that bisection ends at the exact answer.
    units = lcm(*(cost.denominator for cost in costs)) * lcm(
        *(factor.denominator for factor in slow), *(time.denominator for time in besides)
    )
    per_cost = lcm(*(cost.denominator for cost in costs))
    sums = [0, *accumulate(int(cost * per_cost) for cost in costs)]
    weights = [int(factor * (units // per_cost)) for factor in slow]
    constants = [int(time * units) for time in besides]

    low, high = 0, max(weights) * sums[-1] + max(constants)
    while low < high:
        middle = (low + high) // 2
        if _fits(sums, weights, constants, middle):
            high = middle
        else:
            low = middle + 1
    layers = _most_even(sums, weights, constants, low)
    ends = [0, *accumulate(layers)]
    loads = tuple(
        Fraction(weights[stage] * (sums[ends[stage + 1]] - sums[ends[stage]]) + constants[stage], units)
        for stage in range(stages)
    )
    return LayerCut(layers=layers, loads=loads)


def _fits(sums: Sequence[int], weights: Sequence[int], constants: Sequence[int], most: int) -> bool:
    """Whether every layer finds a place with no load above `most`.

    To take as many as fit is no rule: the next stage may be able to take one only if it is a cheap one. All layers at
    which a stage can end are kept, ascending; where it can reach from a later start is no nearer.
    """
    num_layers, stages = len(sums) - 1, len(weights)
    starts: Sequence[int] = (0,)
    for stage in range(stages):
        ends: list[int] = []
        for start in starts:
            last = min(
                _reach(sums, weights[stage], constants[stage], most, start),
                num_layers - (stages - 1 - stage),  # a layer for each of the others
            )
            ends += range(max(start, ends[-1] if ends else 0) + 1, last + 1)
        starts = ends
    return bool(starts) and starts[-1] == num_layers


def _reach(sums: Sequence[int], weight: int, constant: int, most: int, start: int) -> int:
    """Up to which layer a stage can go that begins at `start`."""
    if constant > most:
        return start
    return bisect_right(sums, sums[start] + (most - constant) // weight) - 1


def _most_even(sums: Sequence[int], weights: Sequence[int], constants: Sequence[int], most: int) -> tuple[int, ...]:
    """Of the cuts with no load above `most`: the least sum of squared layers, then the fewest first."""
    num_layers, stages = len(sums) - 1, len(weights)
    # From layer i on, over the stages from s on: the sum of squares of the best, and the layers stage s takes in it.
    best: dict[int, int] = {num_layers: 0}
    takes: list[dict[int, int]] = []
    for stage in reversed(range(stages)):
        now: dict[int, int] = {}
        chosen: dict[int, int] = {}
        for start in range(stage, num_layers - (stages - 1 - stage)):
            for end in range(start + 1, _reach(sums, weights[stage], constants[stage], most, start) + 1):
                rest = best.get(end)
                if rest is None:
                    continue
                value = rest + (end - start) ** 2
                if start not in now or value < now[start]:
                    now[start], chosen[start] = value, end - start
        best = now
        takes.append(chosen)
    layers: list[int] = []
    for chosen in reversed(takes):
        layers.append(chosen[sum(layers)])
    return tuple(layers)


def _require_layers(num_layers: int, stages: int) -> None:
    require_integer(stages, name="stages", error=UsageError)
    require_integer(num_layers, name="layers", error=UsageError)
    if num_layers < stages:
        raise UsageError(
            f"{show(num_layers)} layers can't fill {show(stages)} stages",
            remedy=f"use {show(num_layers)} stages or fewer",
        )
    if num_layers > MAX_LAYERS:
        raise UsageError(
            f"{show(num_layers)} layers are more than the {MAX_LAYERS} that a cut is searched for",
            remedy="count blocks of several layers as one",
        )
