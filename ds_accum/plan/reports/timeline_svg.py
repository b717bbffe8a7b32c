"""The timeline as an SVG, a row a stage: forward, backward, and hatched where the stage waits.

Words are in `currentColor`, passes in tints on which dark numbers can be read, so that one drawing serves a light page,
a dark one and paper. A file of its own brings the two colours along. A window of thousands of passes is drawn in narrow
columns, in each of which forward and backward take as much of the height as they take of the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from ds_accum.plan.pipeline import Instruction, Part, PipelineTimeline, StageTimeline
from ds_accum.plan.reports.timeline_text import drawn_stages

__all__ = ["timeline_svg"]

_WIDTH = 960
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 30, 24
_MOST_ROWS = 32
# More passes than this on the rows drawn can't be told apart, and make a page of megabytes.
_MOST_PASSES = 3000
_COLUMNS = 222

_NUMBER_INK = "#14171b"
# The chunks of a stage in turn.
_TINTS = {
    Part.FORWARD: ("#a3caf7", "#6fa5e8"),
    Part.BACKWARD: ("#f8c48f", "#ea9c4c"),
    Part.BACKWARD_INPUT: ("#f8c48f", "#ea9c4c"),
    Part.BACKWARD_WEIGHT: ("#aee0bd", "#74be8d"),
}
_NAMES = {
    Part.FORWARD: "forward",
    Part.BACKWARD: "backward",
    Part.BACKWARD_INPUT: "backward: input",
    Part.BACKWARD_WEIGHT: "backward: weights",
}
_OWN_STYLE = (
    "<style>svg { color: #1b1f24; background: #fff; font-family: system-ui, sans-serif }"
    " @media (prefers-color-scheme: dark) { svg { color: #e8ebee; background: #14171b } }</style>"
)


def timeline_svg(timeline: PipelineTimeline, *, unit: str = "", standalone: bool = False) -> str:
    """One `<svg>` element; `unit` is written at the axis. `standalone` makes it a file of its own."""
    stages = drawn_stages(len(timeline.stages), _MOST_ROWS)
    are_single = sum(len(timeline.stages[stage].instructions) for stage in stages) <= _MOST_PASSES
    pitch = 30 if len(stages) <= 16 else 20
    height = _TOP + pitch * len(stages) + _BOTTOM
    inside = (
        *_legend(timeline, are_single=are_single),
        *_rows(timeline, stages, pitch, are_single=are_single),
        *_axis(timeline, _TOP + pitch * len(stages), unit),
    )
    own = ' xmlns="http://www.w3.org/2000/svg"' if standalone else ' style="min-width:40rem"'
    style = _OWN_STYLE if standalone else ""
    # No id of another drawing on the page may be the same.
    hatch = (
        f'<defs><pattern id="{_hatch(timeline)}" width="6" height="6" patternUnits="userSpaceOnUse"'
        ' patternTransform="rotate(45)"><path d="M0 0V6" stroke="currentColor" stroke-opacity=".32"'
        ' stroke-width="1.6"/></pattern></defs>'
    )
    shape = timeline.shape
    title = f"{shape.kind.title}: {shape.stages} stages, {shape.micro_batches} micro-batches"
    return "\n".join(
        (
            f'<svg{own} viewBox="0 0 {_WIDTH} {height}" font-size="12" fill="currentColor">',
            f"<title>{escape(title)}</title>{style}{hatch}",
            *inside,
            "</svg>",
        )
    )


def _hatch(timeline: PipelineTimeline) -> str:
    shape = timeline.shape
    return f"waiting-{shape.schedule}-{shape.stages}-{shape.micro_batches}-{timeline.step_ticks}"


def _x(timeline: PipelineTimeline, ticks: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * ticks / timeline.step_ticks


def _legend(timeline: PipelineTimeline, *, are_single: bool) -> Iterator[str]:
    parts = [Part.FORWARD, Part.BACKWARD]
    if timeline.shape.kind.splits_backward:
        parts = [Part.FORWARD, Part.BACKWARD_INPUT, Part.BACKWARD_WEIGHT]
        if timeline.shape.schedule == "dualpipev":
            parts.insert(1, Part.BACKWARD)
    x = float(_LEFT)
    for part in parts:
        yield f'<rect x="{x:g}" y="6" width="14" height="12" fill="{_TINTS[part][0]}"/>'
        yield f'<text x="{x + 19:g}" y="16">{_NAMES[part]}</text>'
        x += 38 + 7 * len(_NAMES[part])
    yield f'<rect x="{x:g}" y="6" width="14" height="12" fill="url(#{_hatch(timeline)})"/>'
    yield f'<text x="{x + 19:g}" y="16">waiting</text>'
    x += 38 + 7 * len("waiting")
    if not are_single:
        yield f'<text x="{x:g}" y="16">height: the part of the time</text>'
    elif timeline.shape.virtual_stages > 1:
        yield f'<text x="{x:g}" y="16">darker: every second chunk of the stage</text>'


def _rows(timeline: PipelineTimeline, stages: Sequence[int], pitch: int, *, are_single: bool) -> Iterator[str]:
    size = pitch - 4
    for row, number in enumerate(stages):
        y = _TOP + pitch * row
        stage = timeline.stages[number]
        yield f'<text x="{_LEFT - 8}" y="{y + size / 2 + 4:g}" text-anchor="end">stage {number}</text>'
        yield (
            f'<rect x="{_LEFT}" y="{y}" width="{_WIDTH - _LEFT - _RIGHT}" height="{size}"'
            f' fill="url(#{_hatch(timeline)})"/>'
        )
        yield from _passes(timeline, stage, y, size) if are_single else _columns(timeline, stage, y, size)


def _passes(timeline: PipelineTimeline, stage: StageTimeline, y: float, size: float) -> Iterator[str]:
    for instruction, start, end in zip(stage.instructions, stage.starts, stage.ends, strict=True):
        left, right = _x(timeline, start), _x(timeline, end)
        tint, width = _TINTS[instruction.part][instruction.chunk % 2], max(right - left - 0.6, 0.4)
        yield (
            f'<rect x="{left:.2f}" y="{y:g}" width="{width:.2f}" height="{size:g}" fill="{tint}">'
            f"<title>{_tooltip(timeline, instruction, start, end)}</title></rect>"
        )
        number = str(instruction.micro_batch)
        if right - left >= 7 * len(number) + 3:
            yield (
                f'<text x="{(left + right) / 2:.2f}" y="{y + size / 2 + 4:g}" text-anchor="middle"'
                f' fill="{_NUMBER_INK}" pointer-events="none">{number}</text>'
            )


def _tooltip(timeline: PipelineTimeline, instruction: Instruction, start: int, end: int) -> str:
    chunk = f", chunk {instruction.chunk}" if timeline.shape.virtual_stages > 1 else ""
    said = f"{_NAMES[instruction.part]}, micro-batch {instruction.micro_batch}{chunk}"
    return f"{said}: {float(start * timeline.tick):.4g} to {float(end * timeline.tick):.4g}"


def _columns(timeline: PipelineTimeline, stage: StageTimeline, y: float, size: float) -> Iterator[str]:
    """Forward, and above it backward, of each column's time."""
    ticks = timeline.step_ticks
    kinds: tuple[Part, ...] = (Part.FORWARD, Part.BACKWARD, Part.BACKWARD_WEIGHT)
    filled = {part: [0.0] * _COLUMNS for part in kinds}
    for instruction, start, end in zip(stage.instructions, stage.starts, stage.ends, strict=True):
        part: Part = Part.BACKWARD if instruction.part is Part.BACKWARD_INPUT else instruction.part
        for column in range(start * _COLUMNS // ticks, -(-end * _COLUMNS // ticks)):
            inside = min(end * _COLUMNS, (column + 1) * ticks) - max(start * _COLUMNS, column * ticks)
            filled[part][column] += inside / ticks
    wide = (_WIDTH - _LEFT - _RIGHT) / _COLUMNS
    below = [0.0] * _COLUMNS
    for part in kinds:
        path = []
        for column, share in enumerate(filled[part]):
            if share > 0:
                top = y + size * (1 - below[column] - share)
                path.append(f"M{_LEFT + wide * column:.1f} {top:.1f}h{wide:.1f}v{size * share:.1f}h-{wide:.1f}z")
                below[column] += share
        if path:
            yield f'<path fill="{_TINTS[part][0]}" d="{"".join(path)}"/>'


def _axis(timeline: PipelineTimeline, y: float, unit: str) -> Iterator[str]:
    total = float(timeline.step_time)
    step = _round_step(total / 8)
    count = int(total / step + 1e-9)
    for mark in range(count + 1):
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * mark * step / total
        yield f'<path d="M{x:.2f} {y:g}v4" stroke="currentColor" stroke-opacity=".6"/>'
        if unit and x > _WIDTH - _RIGHT - 7 * len(unit) - 24:
            continue  # the unit stands there
        yield f'<text x="{x:.2f}" y="{y + 17:g}" text-anchor="middle">{mark * step:g}</text>'
    if unit:
        yield f'<text x="{_WIDTH - _RIGHT}" y="{y + 17:g}" text-anchor="end">{escape(unit)}</text>'


def _round_step(least: float) -> float:
    """1, 2 or 5 times a power of ten."""
    power = 10.0
    while power > least:
        power /= 10
    while power * 10 <= least:
        power *= 10
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)
