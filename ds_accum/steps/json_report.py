"""The summary as JSON, for a program: the fields of Summary, and null where there is nothing to say.

{"version": 1, "files": ["steps.jsonl"], "notes": [], "summary": {"steps": 1000, ...}}
"""

from __future__ import annotations

import json
from dataclasses import asdict

from ds_accum.steps.reading import Log
from ds_accum.steps.summary import Summary

__all__ = ["json_report"]


def json_report(log: Log, summary: Summary) -> str:
    """One object, indented."""
    said = {"version": 1, "files": log.names, "notes": log.notes, "summary": asdict(summary)}
    return json.dumps(said, indent=2, allow_nan=False)
