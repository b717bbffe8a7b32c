"""For whatever shows test results: JUnit XML, a suite a file, a test case a finding.

    <testsuite name="ds_config.json" tests="1" failures="1" errors="0">
      <testcase classname="ds_config.json" name="DSA101 batch-size-mismatch (2:23)">
        <failure type="error" message="train_batch_size 256 ..."/>

A failure is what makes the exit code 1: a finding at or above `--fail-on`. Milder ones are cases that pass, with their
sentence as output; a clean file is one case that passes. A rule that failed itself is an error.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.wording import printable
from ds_accum.lint.diagnostic import Diagnostic
from ds_accum.lint.linter import RULE_FAILED
from ds_accum.lint.reporters.place import relative_name
from ds_accum.lint.reporters.terminal import Terminal
from ds_accum.lint.result import FileResult, LintResult

__all__ = ["report"]

# What is not printable is written as an escape before: XML has no way to hold most control characters.
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


def report(result: LintResult, terminal: Terminal) -> Iterator[str]:  # noqa: ARG001 - every reporter is called alike
    """The whole document."""
    yield '<?xml version="1.0" encoding="utf-8"?>\n'
    cases = sum(max(len(file.diagnostics), 1) for file in result.files)
    failures = sum(_is_failure(file, item) for file in result.files for item in file.diagnostics)
    errors = sum(item.code == RULE_FAILED for item in result.diagnostics)
    yield f'<testsuites name="ds-accum lint" tests="{cases}" failures="{failures}" errors="{errors}">\n'
    for file in result.files:
        yield from _suite(file)
    yield "</testsuites>\n"


def _suite(file: FileResult) -> Iterator[str]:
    name = _text(relative_name(file.document.filename))
    failures = sum(_is_failure(file, item) for item in file.diagnostics)
    errors = sum(item.code == RULE_FAILED for item in file.diagnostics)
    cases = max(len(file.diagnostics), 1)
    yield f'  <testsuite name="{name}" tests="{cases}" failures="{failures}" errors="{errors}">\n'
    if not file.diagnostics:
        yield f'    <testcase classname="{name}" name="nothing found"/>\n'
    for item in file.diagnostics:
        title = _text(f"{item.code} {item.name} ({item.start.line}:{item.start.column})")
        yield f'    <testcase classname="{name}" name="{title}">\n'
        yield f"      {_outcome(file, item)}\n"
        yield "    </testcase>\n"
    yield "  </testsuite>\n"


def _outcome(file: FileResult, item: Diagnostic) -> str:
    message, kind = _text(item.message), item.severity.value
    details = "" if item.help is None else _text(f"help: {item.help}")
    if item.code == RULE_FAILED:
        return f'<error type="{kind}" message="{message}">{details}</error>'
    if _is_failure(file, item):
        return f'<failure type="{kind}" message="{message}">{details}</failure>'
    return f"<system-out>{kind}: {message}{details and f'; {details}'}</system-out>"


def _is_failure(file: FileResult, item: Diagnostic) -> bool:
    return item.code != RULE_FAILED and file.fails_on(item)


def _text(text: str) -> str:
    return printable(text).translate(_ENTITIES)
