"""The timeline in characters, a row a stage: for a terminal, an issue, a log.

Where every pass takes at least a column, each is drawn, with the number of its micro-batch if it fits. A longer
timeline is drawn in shades: the darker a column, the more of its time the stage computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd

from ds_accum.plan.pipeline import Part, PipelineTimeline, StageTimeline
from ds_accum.reporting.text import wrapped

__all__ = ["DRAWN_WITH", "MOST_ROWS", "timeline_text"]

MOST_ROWS = 40
_MOST_COLUMNS_A_UNIT = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class _Signs:
    forward: str
    backward: str
    weight: str
    waiting: str
    shades: str

    def of(self, part: Part) -> str:
        if part is Part.FORWARD:
            return self.forward
        return self.weight if part is Part.BACKWARD_WEIGHT else self.backward


_BLOCKS = _Signs(forward="░", backward="▓", weight="▒", waiting="·", shades=" ░▒▓█")
_ASCII = _Signs(forward="-", backward="=", weight="+", waiting=".", shades=" .-=#")
DRAWN_WITH = "░▓▒·█"


def timeline_text(timeline: PipelineTimeline, *, width: int = 80, blocks: bool = True) -> tuple[str, ...]:
    """Lines of at most `width` columns (40 at the least), the last ones a legend; `blocks` needs Unicode."""
    signs = _BLOCKS if blocks else _ASCII
    stages = drawn_stages(len(timeline.stages), MOST_ROWS)
    labels = [f"stage {stage}" for stage in stages]
    margin = max(map(len, labels)) + 1
    columns = max(width, 40) - margin
    drawn_columns = _columns(timeline, columns)
    if drawn_columns:
        rows = [_exact_row(timeline.stages[stage], signs, drawn_columns, timeline.step_ticks) for stage in stages]
    else:
        rows = [_shaded_row(timeline.stages[stage], signs, columns, timeline.step_ticks) for stage in stages]
    drawn = tuple(f"{label:>{margin - 1}} {row}" for label, row in zip(labels, rows, strict=True))
    legend = " ".join(_legend(timeline, signs, exact=drawn_columns > 0, left_out=len(timeline.stages) - len(stages)))
    return (*drawn, *wrapped(legend, max(width, 40)))


def drawn_stages(stages: int, most: int) -> Sequence[int]:
    """All of them, or as many as may be, evenly spread from the first to the last."""
    if stages <= most:
        return range(stages)
    return [round(row * (stages - 1) / (most - 1)) for row in range(most)]


def _columns(timeline: PipelineTimeline, most: int) -> int:
    """How many columns to draw single passes in: as many for each as it is long, if that can be; 0 for none."""
    unit = 0
    for stage in timeline.stages:
        unit = gcd(unit, *stage.starts, *stage.ends)
    per_unit = min(most * unit // timeline.step_ticks, _MOST_COLUMNS_A_UNIT)
    if per_unit:
        return per_unit * timeline.step_ticks // unit
    shortest = min(
        end - start for stage in timeline.stages for start, end in zip(stage.starts, stage.ends, strict=True)
    )
    return most if shortest * most >= timeline.step_ticks else 0


def _exact_row(stage: StageTimeline, signs: _Signs, columns: int, step_ticks: int) -> str:
    row = [signs.waiting] * columns
    for instruction, start, end in zip(stage.instructions, stage.starts, stage.ends, strict=True):
        left, right = start * columns // step_ticks, end * columns // step_ticks
        number = str(instruction.micro_batch)
        text = number if len(number) < right - left else ""
        row[left:right] = text.ljust(right - left, signs.of(instruction.part))
    return "".join(row)


def _shaded_row(stage: StageTimeline, signs: _Signs, columns: int, step_ticks: int) -> str:
    shades = signs.shades
    return "".join(
        shades[0] if not busy else shades[1 + min(busy * (len(shades) - 1) // span, len(shades) - 2)]
        for busy, span in _busy(stage, columns, step_ticks)
    )


def _busy(stage: StageTimeline, columns: int, step_ticks: int) -> Iterator[tuple[int, int]]:
    """For each column how much of it is computed, and how long it is: in ticks x columns, which are whole."""
    at, last = 0, len(stage.starts)
    for column in range(columns):
        low, high = column * step_ticks, (column + 1) * step_ticks
        busy = 0
        while at < last and stage.starts[at] * columns < high:
            busy += min(stage.ends[at] * columns, high) - max(stage.starts[at] * columns, low)
            if stage.ends[at] * columns > high:
                break
            at += 1
        yield busy, step_ticks


def _legend(timeline: PipelineTimeline, signs: _Signs, *, exact: bool, left_out: int) -> Iterator[str]:
    if exact:
        backward = f"{signs.backward} backward"
        if timeline.shape.kind.splits_backward:
            backward = f"{signs.backward} backward, {signs.weight} of the weights"
        yield f"{signs.forward} forward, {backward}, {signs.waiting} waiting; numbers are micro-batches"
    else:
        shades = " ".join(signs.shades[1:])
        yield f"{shades} computing, from a little of a column's time to all of it; blank: waiting"
    if left_out:
        yield f"({left_out} stages between those are left out)"
