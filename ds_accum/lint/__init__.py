"""The linter: a config and a launch in, diagnostics out.

`lint_text` and `lint_file` are the public functions; `rules` holds one rule a file, `reporters` one output format a
file.
"""

from ds_accum.lint.diagnostic import Diagnostic, Severity
from ds_accum.lint.linter import lint_document, lint_file, lint_text

__all__ = ["Diagnostic", "Severity", "lint_document", "lint_file", "lint_text"]
