"""Loss, gradient norm and skipped steps over the run, drawn with braille dots or, where there are none, in ASCII.

A column shows from the lowest to the highest value of its steps, so that a single spike in a million steps is seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ds_accum.steps.axis import Axis
from ds_accum.steps.buckets import Bucket, bucketed, counted
from ds_accum.steps.columns import Steps
from ds_accum.steps.look import Look
from ds_accum.steps.numbers import finite, short

__all__ = ["plot"]

_LOSS_ROWS = 8
_NORM_ROWS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class _Signs:
    """How dots, axes and amounts are written: a character has `across` x `down` dots."""

    across: int
    down: int
    base: int
    dots: tuple[tuple[int, ...], ...]
    letters: str
    side: str
    tick: str
    corner: str
    floor: str
    amounts: str

    def character(self, lit: int) -> str:
        """The character with these dots lit."""
        if not lit:
            return " "
        return chr(self.base + lit) if self.base else self.letters[lit]


# Braille: dot (row, column) -> its bit, as Unicode numbers the dots.
_BRAILLE = _Signs(
    across=2,
    down=4,
    base=0x2800,
    dots=((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80)),
    letters="",
    side="│",
    tick="┤",
    corner="└",
    floor="─",
    amounts="▁▂▃▄▅▆▇█",
)
_ASCII = _Signs(
    across=1,
    down=2,
    base=0,
    dots=((1,), (2,)),
    letters=" '.:",
    side="|",
    tick="+",
    corner="+",
    floor="-",
    amounts=".:|#",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Panel:
    """One curve, with the numbers beside its rows; no axis where no value is finite."""

    title: str
    values: Sequence[float]
    style: str
    axis: Axis | None
    labels: tuple[str, ...]

    @classmethod
    def of(cls, title: str, values: Sequence[float], *, rows: int, style: str) -> _Panel:
        known = finite(values)
        axis = Axis.over(known) if known else None
        # Beside the top, the middle and the bottom row.
        at = {row: 1 - row / (rows - 1) for row in (0, rows // 2, rows - 1)}
        labels = tuple(short(axis.value(at[row])) if axis and row in at else "" for row in range(rows))
        return cls(title=title, values=values, style=style, axis=axis, labels=labels)


def plot(steps: Steps, look: Look) -> Iterator[str]:
    """The lines of the plot, each at most `look.width` columns."""
    signs = _BRAILLE if look.unicode else _ASCII
    panels = [
        _Panel.of("loss", steps.loss, rows=_LOSS_ROWS, style="cyan"),
        _Panel.of("gradient norm", steps.grad_norm, rows=_NORM_ROWS, style="yellow"),
    ]
    gutter = max(map(len, ("skipped", *(label for panel in panels for label in panel.labels))))
    columns = look.width - gutter - 2
    for panel in panels:
        if panel.axis is None:
            yield f"{look.paint(panel.title, 'bold')}: no step has a finite one"
            continue
        yield look.paint(panel.title, "bold") + (" (log)" if panel.axis.is_logarithmic else "")
        buckets = bucketed(steps.step, panel.values, columns * signs.across)
        for label, line in zip(panel.labels, _drawn(buckets, panel.axis, len(panel.labels), signs), strict=True):
            side = look.paint(signs.tick if label else signs.side, "dim")
            yield f"{label:>{gutter}} {side}{look.paint(line.rstrip(), panel.style)}"
        yield f"{'':{gutter}} {look.paint(signs.corner + signs.floor * columns, 'dim')}"
    yield from _skips(steps, columns, gutter, signs, look)
    yield f"{'step':>{gutter}}  {_step_labels(steps, columns)}"


def _drawn(buckets: Sequence[Bucket | None], axis: Axis, rows: int, signs: _Signs) -> Iterator[str]:
    """The rows of a curve, from the top."""
    top = rows * signs.down - 1
    cells = [[0] * (len(buckets) // signs.across) for _ in range(rows)]

    def light(column: int, one: int, other: int) -> None:
        for height in range(min(one, other), max(one, other) + 1):
            row, dot = divmod(top - height, signs.down)
            cells[row][column // signs.across] |= signs.dots[dot][column % signs.across]

    def dot_of(value: float) -> int:
        return round(axis.height(value) * top)

    before: tuple[int, int] | None = None
    for column, bucket in enumerate(buckets):
        if bucket is None:
            continue
        first, last = dot_of(bucket.first), dot_of(bucket.last)
        light(column, dot_of(bucket.low), dot_of(bucket.high))
        if before is not None:
            # Between two steps, or from one column to the next, the line goes straight.
            came_from, at = before
            height = at
            for between in range(came_from + 1, column + 1):
                reached = round(at + (first - at) * (between - came_from) / (column - came_from))
                light(between, height + (reached > height) - (reached < height), reached)
                height = reached
        before = column, last
    for row in cells:
        yield "".join(map(signs.character, row))


def _skips(steps: Steps, columns: int, gutter: int, signs: _Signs, look: Look) -> Iterator[str]:
    """One row: the more steps of a column were skipped, the fuller its character."""
    skipped = [step for step, applied in zip(steps.step, steps.applied, strict=True) if not applied]
    if not skipped:
        return
    counts = counted(steps.step, skipped, columns)
    most = max(counts)
    row = "".join(
        " " if not count else signs.amounts[math.ceil(count / most * len(signs.amounts)) - 1] for count in counts
    )
    yield f"{'skipped':>{gutter}} {look.paint(signs.side, 'dim')}{look.paint(row.rstrip(), 'red')}"


def _step_labels(steps: Steps, columns: int) -> str:
    first, last = steps.step[0], steps.step[-1]
    left, middle, right = f"{first}", f"{(first + last) // 2}", f"{last}"
    if first == last:
        return left
    line = f"{left}{middle:^{columns - len(left) - len(right)}}{right}"
    return line if len(line) <= columns else f"{left}{right:>{columns - len(left)}}"
