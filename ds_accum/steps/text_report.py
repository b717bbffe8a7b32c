"""The summary and the plot for people at a terminal.

steps.jsonl
  steps          1,000 (1 to 1000), 996 applied, 4 skipped (0.4 %)
  skipped        3 x overflow: steps 1, 2, 500
  ...
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from ds_accum.steps.look import Look
from ds_accum.steps.reading import Log
from ds_accum.steps.sentences import said
from ds_accum.steps.summary import Summary
from ds_accum.steps.terminal_plot import plot

__all__ = ["text_report"]

_HEADING = 15


def text_report(log: Log, summary: Summary, look: Look) -> Iterator[str]:
    """The lines of the report, without line ends."""
    yield look.paint(", ".join(log.names), "bold")
    for part in said(summary):
        lines = _wrapped(part.text, look.width - 2 - _HEADING)
        yield f"  {look.paint(f'{part.heading:{_HEADING}}', 'yellow' if part.is_odd else 'dim')}{lines[0]}"
        for line in lines[1:]:
            yield f"  {'':{_HEADING}}{line}"
    for note in log.notes:
        first, *rest = _wrapped(note, look.width - 6)
        yield f"{look.paint('note:', 'bold')} {first}"
        for line in rest:
            yield f"      {line}"
    yield ""
    yield from plot(log.steps, look)


def _wrapped(text: str, width: int) -> list[str]:
    """The lines of a text; a percent sign stays with its number."""
    lines = textwrap.wrap(text.replace(" %", "\xa0%"), width, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines]
