"""For GitHub Actions: one workflow command a finding, which shows it beside the line in a pull request.

    ::error file=ds_config.json,line=2,endLine=2,col=23,endColumn=25,title=DSA101 batch-size-mismatch::train_batch ...

A runner acts on every line of a log that starts with two colons. So a finding is one line, whatever the config holds:
controls and bidirectional marks are written as escapes first, then "%", and in properties ":" and ",", as GitHub's own
toolkit encodes them (`escapeData` and `escapeProperty` in actions/toolkit, packages/core/src/command.ts).
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.wording import printable
from ds_accum.lint.diagnostic import Diagnostic, Severity
from ds_accum.lint.reporters.place import relative_name
from ds_accum.lint.reporters.terminal import Terminal
from ds_accum.lint.result import LintResult

__all__ = ["report"]

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
# What GitHub turns back into a line end.
_LINE_END = "%0A"


def report(result: LintResult, terminal: Terminal) -> Iterator[str]:  # noqa: ARG001 - every reporter is called alike
    """One line a finding; no text at all for clean files."""
    for item in result.diagnostics:
        properties = ",".join(f"{name}={_property(value)}" for name, value in _properties(item))
        message = _data(item.message) + ("" if item.help is None else f"{_LINE_END}help: {_data(item.help)}")
        yield f"::{_COMMANDS[item.severity]} {properties}::{message}\n"


def _properties(item: Diagnostic) -> Iterator[tuple[str, str]]:
    yield "file", relative_name(item.filename)
    yield "line", str(item.start.line)
    yield "endLine", str(item.end.line)
    # GitHub refuses columns of a span over several lines, and counts the last one in.
    if item.start.line == item.end.line:
        yield "col", str(item.start.column)
        yield "endColumn", str(max(item.start.column, item.end.column - 1))
    yield "title", f"{item.code} {item.name}"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
