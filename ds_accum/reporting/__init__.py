"""How results are shown, whatever they are: numbers, tables and documents as text, Markdown, JSON or a page.

Standard library only.
"""

from ds_accum.reporting.document import Document, Section
from ds_accum.reporting.html_page import render_html
from ds_accum.reporting.markdown import render_markdown
from ds_accum.reporting.numbers import (
    bytes_text,
    count_text,
    error_text,
    listed,
    loss_text,
    seconds_text,
    times_text,
)
from ds_accum.reporting.plain import json_text, plain
from ds_accum.reporting.table import Table
from ds_accum.reporting.terminal import render_text

__all__ = [
    "Document",
    "Section",
    "Table",
    "bytes_text",
    "count_text",
    "error_text",
    "json_text",
    "listed",
    "loss_text",
    "plain",
    "render_html",
    "render_markdown",
    "render_text",
    "seconds_text",
    "times_text",
]
