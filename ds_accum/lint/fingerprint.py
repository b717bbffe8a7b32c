"""What makes two findings of different runs the same one: rule, place in the config, and what is written there.

Neither the message nor the line is part of it, so that a finding stays the same when lines move above it, when a number
in its sentence changes with the launch, and when a later release words it better. A key that gets another wrong value
is another finding.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence

from ds_accum.config.document import Document
from ds_accum.lint.diagnostic import Diagnostic

__all__ = ["fingerprints"]

# Of a SHA-256, in hexadecimal digits: no two findings of one file meet by chance.
_LENGTH = 32


def fingerprints(diagnostics: Sequence[Diagnostic], document: Document, *, filename: str = "") -> Iterator[str]:
    """One fingerprint for each diagnostic of a document, all different; `filename` makes them so among files too."""
    seen: Counter[str] = Counter()
    for item in diagnostics:
        known = json.dumps([filename, item.code, [str(part) for part in item.path], _written(item, document)])
        # Two findings of one rule about the same thing are told apart by their order.
        identity = json.dumps([known, seen[known]])
        seen[known] += 1
        yield hashlib.sha256(identity.encode()).hexdigest()[:_LENGTH]


def _written(item: Diagnostic, document: Document) -> str:
    """The text that the finding points at, "" where that is an object or a list: what it holds is not the finding."""
    text = document.text[item.start.offset : item.end.offset]
    return "" if "\n" in text or "\r" in text or text.startswith(("{", "[")) else text
