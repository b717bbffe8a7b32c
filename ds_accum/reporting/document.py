"""Document: what a command has to say, in the order of reading; terminal, Markdown and page show it each in its way."""

from __future__ import annotations

from dataclasses import dataclass

from ds_accum.reporting.table import Table

__all__ = ["Document", "Section"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A title with paragraphs, then a figure, then a table; each may be missing."""

    title: str
    paragraphs: tuple[str, ...] = ()
    figure: str | None = None
    """A whole `<svg>` element for the page, drawn in `currentColor` where it should follow the reader's text."""

    figure_text: tuple[str, ...] = ()
    """The same figure in lines of characters, for a terminal and for Markdown."""

    table: Table | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One report. `lead` are the sentences that a hurried reader reads; nothing after them contradicts them."""

    title: str
    lead: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
