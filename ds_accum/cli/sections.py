"""Options under headings: `--help` of a command with many of them should read like a page, not like a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

__all__ = ["SectionedCommand", "option"]


class _SectionedOption(click.Option):
    def __init__(self, *args: Any, section: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


def option(*names: str, section: str, **attributes: Any) -> Callable[[Any], Any]:
    """`click.option` under the heading `section`."""
    return click.option(*names, cls=_SectionedOption, section=section, **attributes)


class SectionedCommand(click.Command):
    """A command whose help shows each option under its heading, in the order in which the headings first appear."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                sections.setdefault(getattr(parameter, "section", "Other"), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)
