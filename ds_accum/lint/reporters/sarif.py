"""For code scanning: SARIF 2.1.0, as GitHub, Azure DevOps and the SARIF viewers of editors read it.

One run, with the rules that found something. Lines and columns count code points from 1, as everywhere here; file names
are relative to `%SRCROOT%`, the folder where the linter was started. A fix is offered as the replacements that make it.
https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from ds_accum import __version__
from ds_accum.config.document import Document, Position
from ds_accum.config.schema import format_version
from ds_accum.config.wording import printable
from ds_accum.lint.diagnostic import Diagnostic, Severity
from ds_accum.lint.fingerprint import fingerprints
from ds_accum.lint.fix import TextFix
from ds_accum.lint.linter import RULE_FAILED
from ds_accum.lint.reporters.place import relative_name
from ds_accum.lint.reporters.terminal import Terminal
from ds_accum.lint.result import FileResult, LintResult
from ds_accum.lint.rule import Rule

__all__ = ["report"]

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_ROOT = "%SRCROOT%"
# The name says how it is made: another way to make it needs another name.
_FINGERPRINT = "dsAccum/v1"


def report(result: LintResult, terminal: Terminal) -> Iterator[str]:  # noqa: ARG001 - every reporter is called alike
    """The whole log, indented."""
    rules = sorted({item.code: item for item in result.diagnostics}.values(), key=lambda item: item.code)
    indices = {item.code: index for index, item in enumerate(rules)}
    run = {
        "tool": {
            "driver": {
                "name": "ds-accum",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(item) for item in rules],
            }
        },
        "invocations": [{"executionSuccessful": RULE_FAILED not in indices}],
        "originalUriBaseIds": {_ROOT: {"description": {"text": "the folder where ds-accum was started"}}},
        "columnKind": "unicodeCodePoints",
        "newlineSequences": ["\r\n", "\n", "\r"],
        "results": [values for file in result.files for values in _results(file, indices)],
        "properties": {"deepspeedVersion": format_version(result.version), "worldSizes": result.world_sizes},
    }
    yield f"{json.dumps({'$schema': _SCHEMA, 'version': '2.1.0', 'runs': [run]}, indent=2)}\n"


def _rule(item: Diagnostic) -> dict[str, Any]:
    """What a viewer shows about a rule; of a rule that failed only its name."""
    from ds_accum.lint import rules

    rule: Rule | None = rules.RULES.by_code.get(item.code)
    values: dict[str, Any] = {"id": item.code, "name": _in_pascal_case(item.name)}
    if rule is None:
        return values
    rationale = "\n".join(map(_message, rule.rationale.strip().split("\n")))
    values |= {
        "shortDescription": {"text": _message(rule.summary)},
        "fullDescription": {"text": " ".join(rationale.split("\n\n")[0].split())},
        "help": {"text": f"{rationale}\n\n`ds-accum rule {rule.code}` shows examples."},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"when": rule.when.value, "proof": rule.proof.value},
    }
    if rule.references:
        values["helpUri"] = rule.references[0]
    return values


def _results(file: FileResult, indices: dict[str, int]) -> Iterator[dict[str, Any]]:
    artifact = _artifact(file.document.filename)
    marks = fingerprints(file.diagnostics, file.document)
    for item, fingerprint in zip(file.diagnostics, marks, strict=True):
        sentences = [item.message] if item.help is None else [item.message, f"help: {item.help}"]
        yield {
            "ruleId": item.code,
            "ruleIndex": indices[item.code],
            "level": _LEVELS[item.severity],
            "message": {"text": "\n".join(map(_message, sentences))},
            "locations": [
                {"physicalLocation": {"artifactLocation": artifact, "region": _region(item.start, item.end)}}
            ],
            "partialFingerprints": {_FINGERPRINT: fingerprint},
            **({"fixes": [_fix(item.fix, file.document, artifact)]} if item.fix is not None else {}),
            "properties": {
                "when": item.when.value,
                "path": [part if isinstance(part, int) else str(part) for part in item.path],
                "worlds": item.worlds,
            },
        }


def _fix(fix: TextFix, document: Document, artifact: dict[str, str]) -> dict[str, Any]:
    replacements = [
        {
            "deletedRegion": _region(document.position(edit.start), document.position(edit.end)),
            "insertedContent": {"text": edit.text},
        }
        for edit in fix.edits
    ]
    return {
        "description": {"text": _message(fix.title)},
        "artifactChanges": [{"artifactLocation": artifact, "replacements": replacements}],
        "properties": {"isSafe": fix.is_safe},
    }


def _region(start: Position, end: Position) -> dict[str, int]:
    """A region; the end column is the one after the last, so that an insertion is empty."""
    return {"startLine": start.line, "startColumn": start.column, "endLine": end.line, "endColumn": end.column}


def _artifact(filename: str) -> dict[str, str]:
    name = relative_name(filename)
    # A file name need not be UTF-8: the bytes that are not have no other way into a URI.
    uri = quote(name.encode("utf-8", "surrogateescape"))
    return {"uri": f"file://{uri}"} if name.startswith("/") else {"uri": uri, "uriBaseId": _ROOT}


def _message(text: str) -> str:
    """Plain text for a viewer: `[words](target)` would be a link (section 3.11.6)."""
    text = printable(text)
    return text.replace("[", "\\[").replace("]", "\\]") if "](" in text else text


def _in_pascal_case(name: str) -> str:
    """A readable identifier, as section 3.49.7 wants it: `BatchSizeMismatch`."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("-"))
