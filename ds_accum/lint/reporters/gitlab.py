"""For GitLab: a Code Quality report, shown in merge requests.

    [{"description": "...", "check_name": "DSA101", "fingerprint": "...", "severity": "critical",
      "location": {"path": "ds_config.json", "lines": {"begin": 2, "end": 2}}}]

GitLab compares the fingerprints of two branches: see `ds_accum.lint.fingerprint` for when a finding stays the same.
https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ds_accum.config.wording import printable
from ds_accum.lint.diagnostic import Severity
from ds_accum.lint.fingerprint import fingerprints
from ds_accum.lint.reporters.place import relative_name
from ds_accum.lint.reporters.terminal import Terminal
from ds_accum.lint.result import LintResult

__all__ = ["report"]

# Of info, minor, major, critical and blocker. A job that DeepSpeed refuses is no blocker of a merge by itself.
_SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "minor", Severity.INFO: "info"}


def report(result: LintResult, terminal: Terminal) -> Iterator[str]:  # noqa: ARG001 - every reporter is called alike
    """One list, indented; an empty one for clean files."""
    yield f"{json.dumps(list(_issues(result)), indent=2)}\n"


def _issues(result: LintResult) -> Iterator[dict[str, Any]]:
    for file in result.files:
        path = relative_name(file.document.filename)
        marks = fingerprints(file.diagnostics, file.document, filename=path)
        for item, fingerprint in zip(file.diagnostics, marks, strict=True):
            yield {
                "description": printable(item.message if item.help is None else f"{item.message} (help: {item.help})"),
                "check_name": item.code,
                "fingerprint": fingerprint,
                "severity": _SEVERITIES[item.severity],
                "location": {"path": path, "lines": {"begin": item.start.line, "end": item.end.line}},
            }
