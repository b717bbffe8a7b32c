"""`ds-accum steps`: what the log of a run says; everything but the options is `ds_accum.steps`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO, TextIO

import click

from ds_accum.cli.messages import COLORS, can_show, terminal_for

__all__ = ["FORMATS", "steps"]

FORMATS = ("text", "json")

# What the plot is drawn with.
_DRAWN_WITH = "⣿█│┤└─"


@click.command(short_help="Summarize and plot the step log of a run.")
@click.argument("logs", metavar="LOG...", nargs=-1, required=True, type=click.Path(allow_dash=True))
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write a page with the summary and more plots, which needs no network.",
)
@click.option("--format", "format_name", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option(
    "--color",
    type=click.Choice(COLORS),
    metavar="WHEN",
    default="auto",
    show_default=True,
    help="auto (on a terminal, unless NO_COLOR or FORCE_COLOR is set), always, never.",
)
def steps(logs: tuple[str, ...], html: Path | None, format_name: str, color: str) -> None:
    """Summarize and plot the step log of a run.

    A LOG is the file that "log" names in the ds_accum block of the config, or - for standard input. Several are read
    one after the other: give those of resumed runs in the order of the runs. The run may still go on.

    \b
      ds-accum steps steps.jsonl
      ds-accum steps steps.jsonl --html steps.html
      ds-accum steps monday.jsonl tuesday.jsonl --format json
    """
    from ds_accum.steps.reading import read_logs
    from ds_accum.steps.summary import summarize

    if html is not None and any(_is_same(html, log) for log in logs):
        raise click.UsageError(f"--html {html} would replace a log that is read.")
    log = read_logs(logs, _standard_input())
    summary = summarize(log.steps)
    if html is not None:
        from ds_accum.cli.files import write_file
        from ds_accum.steps.html_page import html_page

        write_file(html, html_page(log, summary))
    if format_name == "json":
        from ds_accum.steps.json_report import json_report

        click.echo(json_report(log, summary))
    else:
        from ds_accum.steps.look import Look
        from ds_accum.steps.text_report import text_report

        terminal = terminal_for(sys.stdout, color)
        look = Look(width=terminal.width, color=terminal.color, unicode=can_show(sys.stdout, _DRAWN_WITH))
        click.echo("\n".join(text_report(log, summary, look)), color=look.color)


def _is_same(path: Path, log: str) -> bool:
    return path.exists() and Path(log).exists() and path.samefile(log)


def _standard_input() -> BinaryIO | None:
    """None where the process was started without one."""
    stream: TextIO | None = sys.stdin
    return None if stream is None else stream.buffer
