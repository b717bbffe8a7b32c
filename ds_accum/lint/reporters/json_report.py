"""For programs: one JSON object, which only ever grows fields as long as its `version` is 1.

    {
      "version": 1,
      "deepspeed_version": "0.19.8",
      "world_sizes": [8],
      "files": 1,
      "diagnostics": [
        {
          "code": "DSA101", "name": "batch-size-mismatch",
          "severity": "error",                      error, warning or info
          "when": "load",                           load, start, first step or never: when DeepSpeed would have noticed
          "message": "...", "help": "...",          help may be null
          "filename": "ds_config.json",
          "path": ["train_batch_size"],             keys and list indices from the root of the config
          "start": {"line": 2, "column": 23, "offset": 24},
          "end": {"line": 2, "column": 26, "offset": 27},
          "worlds": [],                             of world_sizes, where it does not hold for all of them
          "fix": {                                  null where nothing can be said that mends it
            "title": "remove ...", "safe": false,   safe: training can't change by it, or could not have started
            "edits": [                              in the order of the text, apart from each other
              {"start": {...}, "end": {...}, "text": ""}
            ]
          }
        }
      ],
      "fixed": [                                    what --fix has fixed: the diagnostics are those that are left
        {"filename": "ds_config.json", "count": 1}
      ]
    }

Line and column count from 1, offset from 0, all three in code points; the end is exclusive. Everything but ASCII is
escaped, so that the text can go through any terminal and any encoding.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ds_accum.config.document import Document, Position
from ds_accum.config.schema import format_version
from ds_accum.lint.diagnostic import Diagnostic
from ds_accum.lint.fix import TextFix
from ds_accum.lint.reporters.terminal import Terminal
from ds_accum.lint.result import LintResult

__all__ = ["diagnostic_values", "report"]

VERSION = 1


def report(result: LintResult, terminal: Terminal) -> Iterator[str]:  # noqa: ARG001 - every reporter is called alike
    """The whole object, indented."""
    values = {
        "version": VERSION,
        "deepspeed_version": format_version(result.version),
        "world_sizes": result.world_sizes,
        "files": len(result.files),
        "diagnostics": [
            diagnostic_values(diagnostic, file.document) for file in result.files for diagnostic in file.diagnostics
        ],
        "fixed": [{"filename": file.document.filename, "count": file.fixed} for file in result.files if file.fixed],
    }
    yield f"{json.dumps(values, indent=2)}\n"


def diagnostic_values(diagnostic: Diagnostic, document: Document) -> dict[str, Any]:
    """One diagnostic of a document as plain values."""
    return {
        "code": diagnostic.code,
        "name": diagnostic.name,
        "severity": diagnostic.severity.value,
        "when": diagnostic.when.value,
        "message": diagnostic.message,
        "help": diagnostic.help,
        "filename": diagnostic.filename,
        # YAML allows any value as a key.
        "path": [part if isinstance(part, int) else str(part) for part in diagnostic.path],
        "start": _position(diagnostic.start),
        "end": _position(diagnostic.end),
        "worlds": diagnostic.worlds,
        "fix": None if diagnostic.fix is None else _fix(diagnostic.fix, document),
    }


def _fix(fix: TextFix, document: Document) -> dict[str, Any]:
    return {
        "title": fix.title,
        "safe": fix.is_safe,
        "edits": [
            {
                "start": _position(document.position(edit.start)),
                "end": _position(document.position(edit.end)),
                "text": edit.text,
            }
            for edit in fix.edits
        ],
    }


def _position(position: Position) -> dict[str, int]:
    return {"line": position.line, "column": position.column, "offset": position.offset}
