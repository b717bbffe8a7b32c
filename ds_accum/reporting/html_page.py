"""A page in one file: no script, no network, light or dark as the reader's system, wide or narrow, on paper."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import groupby

from ds_accum.reporting.document import Document, Section
from ds_accum.reporting.style import STYLE
from ds_accum.reporting.table import Table

__all__ = ["page", "render_html", "table_html", "text_html"]


def render_html(document: Document) -> str:
    """A Document as a whole page."""
    lead = "".join(f"<li>{text_html(sentence)}</li>\n" for sentence in document.lead)
    body = [f'<ul class="verdict">\n{lead}</ul>'] if lead else []
    return page(document.title, "\n".join((*body, *map(_section, document.sections))))


def _section(section: Section) -> str:
    paragraphs = "".join(f"<p>{text_html(paragraph)}</p>\n" for paragraph in section.paragraphs)
    figure = ""
    if section.figure is not None:
        label = escape(section.title, quote=True)
        figure = f'<figure role="img" aria-label="{label}"><div class="scroll">{section.figure}</div></figure>\n'
    elif section.figure_text:
        figure = f"<pre>{escape(chr(10).join(section.figure_text))}</pre>\n"
    table = "" if section.table is None else table_html(section.table)
    return f"<section>\n<h2>{text_html(section.title)}</h2>\n{paragraphs}{figure}{table}</section>"


def page(title: str, body: str, *, short_title: str | None = None) -> str:
    """A whole document around what `<main>` holds; `short_title` is the name of the window, else `title`."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(short_title or title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>{text_html(title)}</h1>
{body}
</main>
</body>
</html>
"""


def text_html(text: str) -> str:
    """For the page; a percent sign stays with its number, and a power of ten in one piece."""
    whole = escape(text).replace(" %", "&nbsp;%")
    return re.sub(r"\d\.\de-\d+", r'<span class="n">\g<0></span>', whole)


def table_html(table: Table, *, cell_html: Callable[[str], str] = text_html) -> str:
    """Scrolls by itself where it is wider than the screen. Rows that follow upon each other under the same name share
    it. `cell_html` sets every cell but the names."""
    words = [' class="word"' if table.is_word(column) else "" for column in range(len(table.headings))]
    head = "".join(
        f'<th scope="col"{word}>{text_html(cell)}</th>' for cell, word in zip(table.headings, words, strict=True)
    )
    body = "\n".join(_rows(table.rows, words, cell_html))
    note = f'<p class="note">{text_html(table.note)}</p>' if table.note else ""
    return (
        f'<div class="scroll" tabindex="0"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>\n{note}"
    )


def _rows(rows: Sequence[tuple[str, ...]], words: list[str], cell_html: Callable[[str], str]) -> Iterator[str]:
    for name, group in groupby(rows, key=lambda row: row[0]):
        same = list(group)
        span = f' rowspan="{len(same)}"' if len(same) > 1 else ""
        for index, (_, *cells) in enumerate(same):
            heading = "" if index else f'<th scope="row"{span} class="word">{text_html(name)}</th>'
            inside = "".join(f"<td{word}>{cell_html(cell)}</td>" for cell, word in zip(cells, words[1:], strict=True))
            yield f"<tr>{heading}{inside}</tr>"
