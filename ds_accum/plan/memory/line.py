"""One line of an estimate, and the lines of one pipeline stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Line", "Part", "Place", "StageMemory"]

Part = Literal["parameters", "gradients", "optimizer", "buffers", "activations", "logits", "margin"]
Place = Literal["device", "host", "nvme"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """`bytes` of one thing on one rank; `formula` with its numbers, `source` where it can be looked up."""

    part: Part
    name: str
    bytes: int
    formula: str
    source: str
    place: Place = "device"


@dataclass(frozen=True, kw_only=True, slots=True)
class StageMemory:
    """The memory of one rank of pipeline stage `stage`, from 0."""

    stage: int
    num_layers: int
    micro_batches_in_flight: int
    lines: tuple[Line, ...]

    @property
    def device_bytes(self) -> int:
        """On the GPU at the fullest moment, margin included."""
        return self._on("device")

    @property
    def host_bytes(self) -> int:
        """In the memory of the host, for this rank alone."""
        return self._on("host")

    @property
    def nvme_bytes(self) -> int:
        """On NVMe, for this rank alone."""
        return self._on("nvme")

    def part_bytes(self, part: Part, place: Place = "device") -> int:
        """All lines of one part together."""
        return sum(line.bytes for line in self.lines if line.part == part and line.place == place)

    def _on(self, place: Place) -> int:
        return sum(line.bytes for line in self.lines if line.place == place)
