"""How a command writes: in how many columns, in colour or not, and errors with their remedy."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from ds_accum.lint.reporters import Terminal

__all__ = ["COLORS", "can_show", "print_error", "print_note", "terminal_for", "wants_color"]

COLORS = ("auto", "always", "never")


def print_error(message: str, *, help_: str | None = None, color: str = "auto") -> None:
    """One sentence of what went wrong and, if there is one, one of what to do."""
    from ds_accum.config.wording import printable

    paint = wants_color(color, sys.stderr)
    click.echo(f"{click.style('error:', fg='red', bold=True)} {printable(message)}", err=True, color=paint)
    if help_ is not None:
        click.echo(f"{click.style('help:', bold=True)} {printable(help_)}", err=True, color=paint)


def print_note(message: str, *, color: str = "auto") -> None:
    """One sentence of what to know besides the result."""
    from ds_accum.config.wording import printable

    paint = wants_color(color, sys.stderr)
    click.echo(f"{click.style('note:', bold=True)} {printable(message)}", err=True, color=paint)


def can_show(stream: TextIO | None, text: str) -> bool:
    """Whether the encoding of a stream has these characters."""
    encoding = getattr(stream, "encoding", None) or "ascii"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def wants_color(choice: str, stream: TextIO | None) -> bool:
    """Whether to write colour: "always", "never", or "auto", which is on a terminal only.

    NO_COLOR (https://no-color.org) and FORCE_COLOR, if set to anything but nothing, speak before the terminal does.
    """
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return _is_terminal(stream) and os.environ.get("TERM") != "dumb"


def terminal_for(stream: TextIO | None, color: str) -> Terminal:
    """What a report that goes to a stream may use; wider than 120 columns a sentence is hard to read."""
    from ds_accum.lint.reporters import Terminal

    width = 80
    if _is_terminal(stream):
        import shutil  # brings three compression libraries with it

        width = min(max(shutil.get_terminal_size().columns, 40), 120)
    return Terminal(width=width, color=wants_color(color, stream))


def _is_terminal(stream: TextIO | None) -> bool:
    """False for a stream that is closed: Python then has None in its place."""
    return stream is not None and stream.isatty()
