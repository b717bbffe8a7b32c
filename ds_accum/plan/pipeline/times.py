"""How long a stage computes: forward and backward of one micro-batch, each stage its own, as exact fractions.

A time of 0.1 is one tenth, not the float next to it: sums over thousands of micro-batches stay exact, and a simulation
agrees with a formula to the last digit. All times of a pipeline are in one unit, which the caller chooses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from ds_accum.batch.wording import require_integer, show
from ds_accum.errors import UsageError

__all__ = ["Number", "StageTimes", "exact", "stage_times"]

Number = int | float | Fraction | Decimal

# Backward costs twice the forward: a product of matrices has a gradient for either factor, and each is such a product
# (Narayanan et al. 2021, arXiv 2104.04473, appendix).
BACKWARD_PER_FORWARD = Fraction(2)
# Half of the backward is the gradient of the weights, for the same reason (Qi et al. 2023, arXiv 2401.10241).
WEIGHT_SHARE = Fraction(1, 2)

# A hundred times the layers of any published model.
MAX_STAGES = 10_000

# Seconds or a multiple of a forward: nothing that a pipeline does is shorter or longer, and fractions stay short.
_LEAST, _MOST = Fraction(1, 10**12), Fraction(10**12)


@dataclass(frozen=True, kw_only=True, slots=True)
class StageTimes:
    """The times of every stage, for one micro-batch through all layers of the stage.

    `forward[s]` and `backward[s]` are those of stage s; of the backward `weight_share` is the gradient of the weights.
    `transfer` is what an activation or its gradient takes to the next stage. The chunks of a stage share its time
    equally. A transfer keeps no stage from computing, and transfers do not wait for one another.
    """

    forward: tuple[Fraction, ...]
    backward: tuple[Fraction, ...]
    transfer: Fraction = Fraction(0)
    weight_share: Fraction = WEIGHT_SHARE

    @property
    def stages(self) -> int:
        """How many stages there are times for."""
        return len(self.forward)

    @property
    def per_micro_batch(self) -> tuple[Fraction, ...]:
        """Forward and backward of each stage."""
        return tuple(forward + backward for forward, backward in zip(self.forward, self.backward, strict=True))

    @property
    def are_equal(self) -> bool:
        """Whether the stages differ in nothing and transfers take no time: the case that formulas are about."""
        return not self.transfer and len(set(self.forward)) == 1 and len(set(self.backward)) == 1

    def scaled(self, factors: Sequence[Fraction]) -> StageTimes:
        """Every stage `factors[stage]` times as slow."""
        return replace(
            self,
            forward=tuple(time * factor for time, factor in zip(self.forward, factors, strict=True)),
            backward=tuple(time * factor for time, factor in zip(self.backward, factors, strict=True)),
        )


def stage_times(
    stages: int,
    *,
    forward: Number | Sequence[Number] = 1,
    backward: Number | Sequence[Number] | None = None,
    transfer: Number = 0,
    slow: Mapping[int, Number] | None = None,
    weight_share: Number = WEIGHT_SHARE,
) -> StageTimes:
    """The times of `stages` stages, from one number for all or a sequence with one each.

    Without `backward` it is twice the forward. `slow` multiplies both times of a stage. Raises UsageError where there
    are not as many times as stages, a time is not a positive number, or a stage does not exist.
    """
    require_integer(stages, name="stages", error=UsageError)
    if stages > MAX_STAGES:
        raise UsageError(
            f"{show(stages)} stages are more than the {MAX_STAGES} that are given times",
            remedy="bubble_share(stages, micro_batches) answers for any number of equal stages",
        )
    forwards = _one_each(forward, stages, "forward")
    backwards = (
        tuple(time * BACKWARD_PER_FORWARD for time in forwards)
        if backward is None
        else _one_each(backward, stages, "backward")
    )
    share = exact(weight_share, name="the share of the gradient of the weights in the backward", zero=True)
    if share >= 1:
        raise UsageError(
            f"the share of the gradient of the weights in the backward must be below 1, not {float(share):g}",
            remedy="it is near 0.5",
        )
    times = StageTimes(
        forward=forwards,
        backward=backwards,
        transfer=exact(transfer, name="transfer time", zero=True),
        weight_share=share,
    )
    factors = [Fraction(1)] * stages
    for stage, factor in (slow or {}).items():
        require_integer(stage, name="the slow stage", minimum=0, error=UsageError)
        if stage >= stages:
            raise UsageError(
                f"there is no stage {show(stage)} in a pipeline of {show(stages)}",
                remedy=f"stages are numbered from 0 to {show(stages - 1)}",
            )
        factors[stage] *= exact(factor, name=f"the factor of stage {stage}", remedy="give one such as 1.3")
    return times.scaled(factors)


def exact(
    value: Number, *, name: str, zero: bool = False, remedy: str = "give all times in one other unit"
) -> Fraction:
    """A time as the fraction that its digits say. Raises UsageError where it is no number above 0; `zero` allows 0.

    `remedy` is what to do about one that is too small or too large.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, Fraction, Decimal)):
        raise UsageError(f"{name} must be a number, not a {type(value).__name__}", remedy="give one such as 0.02")
    if isinstance(value, (float, Decimal)) and not Decimal(value).is_finite():
        raise UsageError(f"{name} must be a number, not {value}", remedy="give one such as 0.02")
    if value < 0 or (value == 0 and not zero):
        raise UsageError(
            f"{name} must be {'at least' if zero else 'more than'} 0, not {_shown(value)}",
            remedy="give one such as 0.02",
        )
    if value == 0:
        return Fraction(0)
    # The exponent first: a decimal may stand for an integer that no memory holds.
    if (isinstance(value, Decimal) and abs(value.adjusted()) > 13) or not _LEAST <= (number := _digits(value)) <= _MOST:
        raise UsageError(f"{name} is {_shown(value)}, and must be between 1e-12 and 1e12", remedy=remedy)
    return number


def _digits(value: Number) -> Fraction:
    return Fraction(str(value)) if isinstance(value, float) else Fraction(value)


def _one_each(times: Number | Sequence[Number], stages: int, name: str) -> tuple[Fraction, ...]:
    if isinstance(times, str):
        raise UsageError(f"{name} time must be a number, not a str", remedy="give one such as 0.02")
    if not isinstance(times, Sequence):
        return (exact(times, name=f"{name} time"),) * stages
    if len(times) != stages:
        raise UsageError(
            f"there are {len(times)} {name} times for {show(stages)} stages",
            remedy="give one for each stage, or a single one for all",
        )
    return tuple(exact(time, name=f"{name} time of stage {stage}") for stage, time in enumerate(times))


def _shown(value: Number) -> str:
    """Short enough to read: a Decimal may have ten thousand digits."""
    if isinstance(value, int):
        return show(value)
    if isinstance(value, Fraction):
        return f"{show(value.numerator)}/{show(value.denominator)}"
    return f"{value:.6g}"
