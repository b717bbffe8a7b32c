"""A transfer: what one rank passes to a collective in an optimizer step, how often, and what it sends for it.

For an input of S bytes on a ring of N ranks a rank sends

    all-reduce        2 (N-1)/N S        reduce-scatter, all-to-all    (N-1)/N S
    all-gather          (N-1) S          point-to-point                        S

since the input of an all-gather is one part of N. (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
clusters of workstations", 2009: a ring sends no more than it must; the factors of NVIDIA's nccl-tests,
doc/PERFORMANCE.md.) A fraction of a byte is rounded up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Group", "Kind", "Transfer", "passed_bytes", "sent_bytes", "total_sent_bytes"]

Kind = Literal["all-reduce", "reduce-scatter", "all-gather", "all-to-all", "point-to-point"]

Group = Literal["data", "expert data", "tensor", "pipeline", "context", "sequence", "expert"]
"""Which ranks take part: those of one degree of the layout. "data" are all that hold the same parameters: the data,
context and sequence parallel ranks together, over which DeepSpeed shards (`seq_data_parallel_group`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Transfer:
    """`times` calls an optimizer step, each given `bytes_each` bytes by every one of the `ranks` of a group.

    A call is one of the formula's: software may cut it in buckets, which changes how many there are and not what they
    carry.
    """

    name: str
    kind: Kind
    group: Group
    ranks: int
    times: int
    bytes_each: int
    formula: str
    source: str

    @property
    def passed_bytes(self) -> int:
        """Bytes of the tensors that a rank passes in, over the whole optimizer step."""
        return self.times * self.bytes_each

    @property
    def sent_bytes(self) -> int:
        """Bytes that leave a rank, over the whole optimizer step."""
        return self.times * sent_bytes(self.kind, self.bytes_each, self.ranks)


def sent_bytes(kind: Kind, input_bytes: int, ranks: int) -> int:
    """Bytes that one rank sends in one call on an input of `input_bytes`; 0 where it is alone."""
    others = ranks - 1
    match kind:
        case "all-reduce":
            return -(-2 * others * input_bytes // ranks)
        case "reduce-scatter" | "all-to-all":
            return -(-others * input_bytes // ranks)
        case "all-gather":
            return others * input_bytes
        case "point-to-point":
            return input_bytes if others else 0


def passed_bytes(transfers: Iterable[Transfer]) -> int:
    """What a rank passes in, all transfers together."""
    return sum(transfer.passed_bytes for transfer in transfers)


def total_sent_bytes(transfers: Iterable[Transfer]) -> int:
    """What a rank sends, all transfers together."""
    return sum(transfer.sent_bytes for transfer in transfers)
