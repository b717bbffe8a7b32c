"""Diagnostics in, text out: one module a format, each with a function `report`.

A reporter gets the whole `LintResult`, with the documents, so that it can show an excerpt, and yields pieces of text,
line ends included. It escapes whatever its reader would act on: a terminal, a problem matcher, a browser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TypeAlias, cast

from ds_accum.lint.reporters.terminal import Terminal
from ds_accum.lint.result import LintResult

__all__ = ["REPORTERS", "Reporter", "Terminal", "reporter_of"]

Reporter: TypeAlias = Callable[[LintResult, Terminal], Iterator[str]]

# Format -> its module in this folder, imported when it is asked for.
REPORTERS = {
    "full": "full",
    "concise": "concise",
    "json": "json_report",
    "sarif": "sarif",
    "github": "github",
    "gitlab": "gitlab",
    "junit": "junit",
    "statistics": "statistics",
}


def reporter_of(format_name: str) -> Reporter:
    """The reporter of a format; raises KeyError for a format that there is not."""
    return cast(Reporter, import_module(f"{__name__}.{REPORTERS[format_name]}").report)
