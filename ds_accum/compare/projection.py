"""projection: what the measured counts would be on more ranks, by formula. Never a measurement, and labelled so.

    parse_projection("world=64,1024")  ->  project(comparison, Projection(worlds=(64, 1024), ...))

Every rank keeps its micro-batch and its accumulation, so the global batch grows with the ranks. Of a step on n ranks of
which N were measured:

    all-reduce, reduce-scatter     input S as measured: the whole gradient, whatever n
    all-gather                     input s N / n: each rank's part of the same whole gets smaller
    ds-accum's totals              64 bytes a rank; beyond 1,024 ranks two all-reduces of 64 and 32 bytes instead

Bytes sent per rank and the time they take at bandwidth B, and the time that messages wait at latency L each:

    all-reduce         2 (n-1)/n S / B     2 (n-1) L round a ring     2 ceil(log2 n) L at best
    reduce-scatter       (n-1)/n S / B       (n-1) L                    ceil(log2 n) L
    all-gather           (n-1) s / B         (n-1) L                    ceil(log2 n) L

(Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005, sections 4.1 to
4.5: ring, recursive doubling and halving; both send the same bytes. Patarasuk and Yuan, 2009: a ring sends no more than
it must.) Nothing is overlapped with compute, and every link is the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ds_accum.compare.formulas import totals_moment
from ds_accum.compare.measures import ring_bytes, variants_by_name
from ds_accum.compare.result import CollectiveCount, Comparison, Moment
from ds_accum.compare.spec import Variant
from ds_accum.errors import UsageError

__all__ = ["ASSUMPTIONS", "ProjectedStep", "Projection", "parse_projection", "project"]

ASSUMPTIONS = (
    "projected by formula, not measured: each rank keeps its micro-batch and accumulation, links are alike, and nothing"
    " overlaps with compute"
)

_TOTALS_BYTES = 64
_MOST_RANKS_GATHERED = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What is asked for."""

    worlds: tuple[int, ...]
    bytes_per_second: float = 25e9
    """What a rank sends a second while it sends; 25 GB/s is a 200 Gb/s network card each."""

    latency_seconds: float = 5e-6
    """From a message's start until its first byte is there."""

    def __post_init__(self) -> None:
        if not self.worlds or any(world < 2 for world in self.worlds):
            raise UsageError(
                f"a projection needs world sizes of at least 2, not {', '.join(map(str, self.worlds)) or 'none'}",
                remedy="give them as in world=64,1024",
            )
        if not (0 < self.bytes_per_second < math.inf and 0 <= self.latency_seconds < math.inf):
            raise UsageError(
                f"{self.bytes_per_second:g} bytes a second with {self.latency_seconds:g} s of latency is no link",
                remedy="give a bandwidth above 0 and a latency of at least 0",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectedStep:
    """One optimizer step of one variant on so many ranks, per rank. A projection."""

    variant: str
    world_size: int
    global_batch_size: int
    calls: float
    bytes_sent: float
    transfer_seconds: float
    """What the bytes take."""

    ring_latency_seconds: float
    least_latency_seconds: float
    """What the messages wait: round a ring, and by the algorithms that need the fewest."""

    @property
    def ring_latency_share(self) -> float:
        """Share of the communication time that is latency, round a ring."""
        return _share(self.ring_latency_seconds, self.transfer_seconds)

    @property
    def least_latency_share(self) -> float:
        """Share of the communication time that is latency, at best."""
        return _share(self.least_latency_seconds, self.transfer_seconds)


def parse_projection(text: str, *, bytes_per_second: float = 25e9, latency_seconds: float = 5e-6) -> Projection:
    """`"world=64,1024,16384"` -> Projection. Raises UsageError."""
    key, equals, values = text.partition("=")
    worlds = [value.strip() for value in values.split(",")]
    if key.strip() != "world" or not equals or not all(world.isdecimal() for world in worlds):
        raise UsageError(f"{text!r} is no projection", remedy="write the numbers of ranks, as in world=64,1024,16384")
    return Projection(
        worlds=tuple(dict.fromkeys(int(world) for world in worlds)),
        bytes_per_second=bytes_per_second,
        latency_seconds=latency_seconds,
    )


def project(comparison: Comparison, projection: Projection) -> tuple[ProjectedStep, ...]:
    """A step of each variant that was counted, on each number of ranks; variants in the order of the results.

    One process has nothing to count, and so nothing to project.
    """
    variants = variants_by_name(comparison)
    steps = []
    for result in comparison.results:
        variant = variants[result.name]
        if result.communication is not None and variant.engine != "single" and comparison.spec.world_size > 1:
            counts = result.communication.counted
            steps += [_step(comparison, projection, variant, counts, world) for world in projection.worlds]
    return tuple(steps)


def _step(
    comparison: Comparison, projection: Projection, variant: Variant, counts: Sequence[CollectiveCount], world: int
) -> ProjectedStep:
    scaled = tuple(_scaled(counts, variant, comparison.spec.world_size, world))
    sent = ring_bytes(scaled, world)
    ring, least = _messages(scaled, world)
    return ProjectedStep(
        variant=variant.name,
        world_size=world,
        global_batch_size=variant.micro_batch_size * variant.gradient_accumulation_steps * world,
        calls=sum(count.calls for count in scaled),
        bytes_sent=sent,
        transfer_seconds=sent / projection.bytes_per_second,
        ring_latency_seconds=ring * projection.latency_seconds,
        least_latency_seconds=least * projection.latency_seconds,
    )


def _scaled(
    counts: Sequence[CollectiveCount], variant: Variant, measured: int, world: int
) -> Iterator[CollectiveCount]:
    """The inputs of the same collectives on another number of ranks."""
    for count in counts:
        calls, size = count.calls, count.bytes
        if count.kind == "all-gather":
            if (
                variant.engine == "token"
                and count.moment == totals_moment(variant)
                and calls >= 1
                and size >= _TOTALS_BYTES
            ):
                yield from _totals(world, count.moment)
                calls, size = calls - 1, size - _TOTALS_BYTES
            size = size * measured / world
        if calls:
            yield CollectiveCount(kind=count.kind, moment=count.moment, calls=calls, bytes=size)


def _totals(world: int, moment: Moment) -> Iterator[CollectiveCount]:
    """What ds-accum's own exchange is there (ds_accum/engine/exchange.py)."""
    if world <= _MOST_RANKS_GATHERED:
        yield CollectiveCount(kind="all-gather", moment=moment, calls=1.0, bytes=float(_TOTALS_BYTES))
    else:
        yield CollectiveCount(kind="all-reduce", moment=moment, calls=2.0, bytes=_TOTALS_BYTES * 1.5)


def _messages(counts: Sequence[CollectiveCount], world: int) -> tuple[float, float]:
    """How many messages follow one upon the other: round a ring, and at best."""
    ring = least = 0.0
    for count in counts:
        rounds = 2 if count.kind == "all-reduce" else 1
        ring += count.calls * rounds * (world - 1)
        least += count.calls * rounds * math.ceil(math.log2(world))
    return ring, least


def _share(part: float, rest: float) -> float:
    return part / (part + rest) if part + rest else 0.0
