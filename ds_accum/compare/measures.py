"""What is worked out from measured numbers: sums, bytes on a ring, quartiles, paired ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ds_accum.compare.formulas import is_coalesced
from ds_accum.compare.result import CollectiveCount, Comparison, HeldMemory, Memory, VariantResult
from ds_accum.compare.spec import Variant

__all__ = [
    "Quartiles",
    "by_kind_and_moment",
    "formula_differences",
    "held_bytes",
    "is_within_tolerance",
    "paired_ratio",
    "passed_bytes",
    "quartiles",
    "ring_bytes",
    "same_training",
    "sign_test",
    "variants_by_name",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quartiles:
    """The middle half of some values."""

    low: float
    median: float
    high: float

    def overlaps(self, other: Quartiles) -> bool:
        """Whether the middle halves have a value in common: then a difference can't be told from noise."""
        return self.low <= other.high and other.low <= self.high


def quartiles(values: Iterable[float]) -> Quartiles | None:
    """Of the values that are finite, by straight lines between them; None where there is none."""
    ordered = sorted(filter(math.isfinite, values))
    if not ordered:
        return None

    def at(share: float) -> float:
        place = (len(ordered) - 1) * share
        below = math.floor(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (ordered[above] - ordered[below]) * (place - below)

    return Quartiles(low=at(0.25), median=at(0.5), high=at(0.75))


def paired_ratio(of: VariantResult, to: VariantResult) -> Quartiles | None:
    """Step time of one variant over another's, step by step: they were alternated, so that what slows the machine down
    slows both. None where there are no pairs."""
    return quartiles(above / below for above, below in _pairs(of, to) if below > 0)


def sign_test(of: VariantResult, to: VariantResult) -> float:
    """How likely a coin is to favour one side at least as clearly as the paired steps do, on either side; 1 without
    pairs. Exact, and true whatever the noise looks like; six pairs that all say the same are 0.03."""
    signs = [above > below for above, below in _pairs(of, to) if above != below]
    fewer = min(sum(signs), len(signs) - sum(signs))
    tail = sum(math.comb(len(signs), k) for k in range(fewer + 1))
    return float(min(1.0, 2 * tail / 2 ** len(signs)))


def _pairs(of: VariantResult, to: VariantResult) -> list[tuple[float, float]]:
    if of.speed is None or to.speed is None or len(of.speed.step_seconds) != len(to.speed.step_seconds):
        return []
    return list(zip(of.speed.step_seconds, to.speed.step_seconds, strict=True))


def passed_bytes(counts: Iterable[CollectiveCount]) -> float:
    """Bytes that a rank passes to collectives in one step."""
    return sum(count.bytes for count in counts)


def ring_bytes(counts: Iterable[CollectiveCount], world_size: int) -> float:
    """Bytes that a rank sends in one step where every collective goes round a ring of N ranks.

    For an input of S bytes: all-reduce 2 (N-1)/N S, reduce-scatter and all-to-all (N-1)/N S, all-gather (N-1) S since
    its input is one part of N, broadcast S; "other" counts as S. (Patarasuk and Yuan, "Bandwidth optimal all-reduce
    algorithms for clusters of workstations", 2009; the factors of NVIDIA's nccl-tests, doc/PERFORMANCE.md.)
    """
    share = (world_size - 1) / world_size
    factors = {
        "all-reduce": 2 * share,
        "reduce-scatter": share,
        "all-to-all": share,
        "all-gather": world_size - 1,
        "broadcast": 1.0 if world_size > 1 else 0.0,
        "other": 1.0 if world_size > 1 else 0.0,
    }
    return sum(factors[count.kind] * count.bytes for count in counts)


def by_kind_and_moment(counts: Iterable[CollectiveCount]) -> dict[tuple[str, str], tuple[float, float]]:
    """(kind, moment) -> calls and bytes, added up; without what was never called."""
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for count in counts:
        calls, size = found.get((count.kind, count.moment), (0.0, 0.0))
        found[count.kind, count.moment] = (calls + count.calls, size + count.bytes)
    return {key: value for key, value in found.items() if value != (0.0, 0.0)}


def formula_differences(result: VariantResult) -> list[tuple[str, str, tuple[float, float], tuple[float, float]]]:
    """(kind, moment, counted, expected), each as calls and bytes, where the two differ."""
    communication = result.communication
    if communication is None or communication.expected is None:
        return []
    counted, expected = by_kind_and_moment(communication.counted), by_kind_and_moment(communication.expected)
    nothing = (0.0, 0.0)
    return [
        (kind, moment, counted.get((kind, moment), nothing), expected.get((kind, moment), nothing))
        for kind, moment in dict.fromkeys([*counted, *expected])
        if not _is_close(counted.get((kind, moment), nothing), expected.get((kind, moment), nothing))
    ]


def is_within_tolerance(result: VariantResult) -> bool | None:
    """Whether rounding explains all of a variant's error; None where it is not known."""
    if result.parity is None or result.parity.largest_error is None:
        return None
    # Written so that an error that is not a number is none that rounding explains.
    return result.parity.largest_error <= result.parity.tolerance


def held_bytes(memory: Memory | HeldMemory) -> int:
    """Parameters, gradients and optimizer state together."""
    return memory.parameters + memory.gradients + memory.optimizer_state


def variants_by_name(comparison: Comparison) -> Mapping[str, Variant]:
    """What was run, under the names that the results have."""
    return {variant.name: variant for variant in comparison.spec.variants}


def same_training(variant: Variant) -> tuple[object, ...]:
    """Equal for variants that train the same, whoever weights: stage, cut and what was varied of DeepSpeed's keys."""
    varied = sorted((key, repr(value)) for key, value in variant.varied.items() if not key.startswith("ds_accum."))
    return (
        variant.stage,
        variant.micro_batch_size,
        variant.gradient_accumulation_steps,
        is_coalesced(variant),
        tuple(varied),
    )


def _is_close(counted: Sequence[float], expected: Sequence[float]) -> bool:
    return all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) for a, b in zip(counted, expected, strict=True))
