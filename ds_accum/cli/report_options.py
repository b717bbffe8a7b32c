"""--format, --output-file and --color of the commands that report a document.

click.command(...)(report_options(ledger))    # ledger(report=ReportOptions(...))
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ds_accum.cli.messages import COLORS, can_show, terminal_for
from ds_accum.cli.sections import option

if TYPE_CHECKING:
    from ds_accum.reporting import Document

__all__ = ["REPORT_FORMATS", "ReportOptions", "report_options"]

REPORT_FORMATS = ("text", "json", "md", "html")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """The options as given."""

    format: str
    output_file: Path | None
    color: str

    @property
    def width(self) -> int:
        """Columns that a line may take: those of the terminal, 80 in a file or a pipe."""
        return 80 if self.output_file is not None else terminal_for(sys.stdout, self.color).width

    def can_show(self, text: str) -> bool:
        """Whether these characters can be written where the report goes."""
        return self.output_file is not None or can_show(sys.stdout, text)

    def write(self, document: Callable[[], Document], json_value: Callable[[], Mapping[str, object]]) -> None:
        """To the file, or to standard output. Only what the format needs is called."""
        from ds_accum.reporting import json_text, render_html, render_markdown, render_text

        color = self.output_file is None and terminal_for(sys.stdout, self.color).color
        match self.format:
            case "json":
                text = json_text(json_value())
            case "md":
                text = render_markdown(document())
            case "html":
                text = render_html(document())
            case _:
                text = render_text(document(), width=self.width, color=color)
        if self.output_file is None:
            click.echo(text, nl=False, color=color)
        else:
            from ds_accum.cli.files import write_file

            write_file(self.output_file, text)


def report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options; it takes them as `report`, a ReportOptions."""

    @functools.wraps(command)
    def run(*, format_name: str, output_file: Path | None, color: str, **others: Any) -> Any:
        return command(report=ReportOptions(format=format_name, output_file=output_file, color=color), **others)

    for add in reversed(_OPTIONS):
        run = add(run)
    return run


_OPTIONS = (
    option(
        "--format",
        "format_name",
        type=click.Choice(REPORT_FORMATS),
        default="text",
        show_default=True,
        section="Report",
        help="text, json (every number), md (for an issue), html (one page, no network).",
    ),
    option(
        "--output-file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        section="Report",
        help="Write the report there instead of standard output.",
    ),
    option(
        "--color",
        type=click.Choice(COLORS),
        metavar="WHEN",
        default="auto",
        show_default=True,
        section="Report",
        help="auto (on a terminal, unless NO_COLOR or FORCE_COLOR is set), always, never.",
    ),
)
