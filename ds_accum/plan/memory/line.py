"""One line of an estimate, and the lines of one pipeline stage.

A step has five moments at which a GPU can be fullest; what is held throughout counts in each of them:

    loss          the end of the forward: all activations, the logits, and the gradients of earlier micro-batches
    backward      the backward of the last layer: all activations of layers, and what that layer's backward adds
    reduction     the end of the backward: all gradients, the buckets that they travel in, no activations
    conversion    gradients are flattened, and turned into the dtype of the optimizer
    update        the optimizer runs, on gradients in its own dtype
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

__all__ = ["ALWAYS", "MOMENTS", "Line", "Moment", "Part", "Place", "StageMemory", "make_line"]

Part = Literal["parameters", "gradients", "optimizer", "buffers", "activations", "logits", "margin"]
Place = Literal["device", "host", "nvme"]
Moment = Literal["loss", "backward", "reduction", "conversion", "update"]

ALWAYS: tuple[Moment, ...] = get_args(Moment)
MOMENTS: dict[Moment, str] = {
    "loss": "at the end of the forward",
    "backward": "in the backward of the last layer",
    "reduction": "at the end of the backward",
    "conversion": "when gradients are turned into the optimizer's dtype",
    "update": "when the optimizer updates",
}
"""Each moment in words."""


class Line(NamedTuple):
    """`bytes` of one thing on one rank, held at `moments`; `source` says where its formula can be looked up."""

    part: Part
    name: str
    bytes: int
    template: str
    source: str
    numbers: Mapping[str, Any]
    moments: tuple[Moment, ...] = ALWAYS
    place: Place = "device"

    @property
    def formula(self) -> str:
        """The formula with its numbers: "2 B x 6,738,415,616 parameters"."""
        # Put together only where it is read: a search makes millions of lines and shows a few.
        return self.template.format_map({name: _said(value) for name, value in self.numbers.items()})


def make_line(
    part: Part,
    name: str,
    amount: int,
    template: str,
    source: str,
    *,
    moments: tuple[Moment, ...] = ALWAYS,
    place: Place = "device",
    **numbers: Any,
) -> Line:
    """A line whose formula is `template` with `numbers` filled in."""
    return Line(part, name, amount, template, source, numbers, moments, place)


@dataclass(frozen=True, kw_only=True, slots=True)
class StageMemory:
    """The memory of one rank of pipeline stage `stage`, from 0.

    `forwards_in_flight` are the forwards whose backward is still to come, each of one of the stage's model chunks; of
    a schedule without virtual stages they are micro-batches.
    """

    stage: int
    num_layers: int
    forwards_in_flight: int
    lines: tuple[Line, ...]

    @property
    def device_bytes(self) -> int:
        """On the GPU at the fullest moment, margin included."""
        return self.bytes_at(self.fullest_moment)

    @property
    def fullest_moment(self) -> Moment:
        """When the GPU is fullest; of equals the first."""
        return max(ALWAYS, key=self.bytes_at)

    @property
    def host_bytes(self) -> int:
        """In the memory of the host, for this rank alone."""
        return self._on("host")

    @property
    def nvme_bytes(self) -> int:
        """On NVMe, for this rank alone."""
        return self._on("nvme")

    def bytes_at(self, moment: Moment) -> int:
        """On the GPU at one moment of the step."""
        return sum(line.bytes for line in self.lines if line.place == "device" and moment in line.moments)

    def part_bytes(self, part: Part, moment: Moment | None = None) -> int:
        """One part on the GPU, at one moment or, without one, at the fullest."""
        when = moment or self.fullest_moment
        return sum(
            line.bytes for line in self.lines if line.part == part and line.place == "device" and when in line.moments
        )

    def _on(self, place: Place) -> int:
        return sum(line.bytes for line in self.lines if line.place == place)


def _said(value: int | float | str) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else value
