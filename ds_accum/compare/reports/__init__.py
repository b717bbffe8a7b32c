"""A Comparison as people and programs read it. Only `render_html` needs matplotlib, and only when it is called."""

from ds_accum.compare.reports.html_page import render_html
from ds_accum.compare.reports.json_report import json_schema, read_json, render_json
from ds_accum.compare.reports.markdown import render_markdown
from ds_accum.compare.reports.terminal import render_terminal

__all__ = ["json_schema", "read_json", "render_html", "render_json", "render_markdown", "render_terminal"]
