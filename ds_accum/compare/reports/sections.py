"""The sections of a full report, in order: a title, the figure that opens it, a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ds_accum.compare.projection import ProjectedStep, Projection
from ds_accum.compare.reports.tables import (
    communication_table,
    loss_table,
    memory_table,
    misuse_table,
    parity_table,
    projection_table,
    speed_table,
)
from ds_accum.compare.result import Comparison
from ds_accum.reporting.table import Table

__all__ = ["FigureName", "Section", "sections"]

FigureName = Literal["loss", "error", "communication", "memory", "speed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section."""

    title: str
    figure: FigureName | None
    table: Table


def sections(
    comparison: Comparison, steps: Sequence[ProjectedStep] | None, projection: Projection | None
) -> Iterator[Section]:
    """Those that the comparison has something for; projections where some were asked for."""
    yield Section(title="Loss", figure="loss", table=loss_table(comparison))
    yield Section(title="Error against the truth", figure="error", table=parity_table(comparison))
    yield Section(title="Communication", figure="communication", table=communication_table(comparison))
    yield Section(title="Memory", figure="memory", table=memory_table(comparison))
    yield Section(title="Step time", figure="speed", table=speed_table(comparison))
    misuses = misuse_table(comparison)
    if misuses is not None:
        yield Section(title="Misuse in the middle of a window", figure=None, table=misuses)
    if steps is not None and projection is not None:
        yield Section(title="Projection, not measured", figure=None, table=projection_table(steps, projection))
