"""Gives the linter a range of fuzzed inputs and says what went wrong: for the tests, and by hand.

python lint_fuzzed.py FIRST_SEED COUNT      each failure as a line of JSON, then the tally
python lint_fuzzed.py --show SEED           one input, and what the linter says to it
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from fuzzed import FuzzedInput, bundled_samples, fuzz

from ds_accum.config.document import Document, read_bytes
from ds_accum.lint.diagnostic import Diagnostic
from ds_accum.lint.linter import RULE_FAILED, lint_document
from ds_accum.lint.rule import Rule
from ds_accum.lint.rules import RULES

# Seconds of this process' own time that one input may take; PyYAML alone needs half a second for the longest of them.
SLOWEST = 2.0


def main(first: int, count: int) -> None:
    inputs = samples()
    slowest = 0.0
    for seed in range(first, first + count):
        item = fuzz(seed, inputs)
        took, problems = timed(item)
        if took > SLOWEST:
            # Whatever else the machine was doing at the time, it is not likely to do three times.
            took = min(took, timed(item)[0], timed(item)[0])
        if took > SLOWEST:
            problems.append(f"took {took:.2f} s")
        slowest = max(slowest, took)
        for problem in problems:
            print(json.dumps({"seed": seed, "kind": item.kind, "problem": problem}), flush=True)
    print(json.dumps({"linted": count, "slowest": slowest}), flush=True)


def timed(item: FuzzedInput) -> tuple[float, list[str]]:
    """Seconds of this process' own time, and what went wrong."""
    started = time.process_time()
    problems = list(problems_of(item))
    return time.process_time() - started, problems


def samples() -> list[bytes]:
    """The bundled configs, and the corpus where there is one."""
    corpus = os.environ.get("DS_ACCUM_CORPUS")
    real = sorted((Path(corpus) / "files").iterdir()) if corpus else []
    return bundled_samples() + [path.read_bytes() for path in real]


def problems_of(item: FuzzedInput, *, rules: Sequence[Rule] = RULES) -> Iterator[str]:
    """What the linter does wrong with an input: it raises, a rule fails, or a diagnostic points outside the text."""
    try:
        document = read_bytes(item.data, filename=item.filename)
        diagnostics = lint_document(document, launches=[item.launch], rules=rules)
        yield from _problems_of(document, diagnostics)
    except Exception:
        yield traceback.format_exc()


def _problems_of(document: Document, diagnostics: Sequence[Diagnostic]) -> Iterator[str]:
    for item in diagnostics:
        if item.code == RULE_FAILED:
            yield item.message
        if not 0 <= item.start.offset <= item.end.offset <= len(document.text):
            yield f"{item.code} points from {item.start} to {item.end} of {len(document.text)} characters"
        if document.text:
            document.line(item.start.line)


def show(seed: int) -> None:
    item = fuzz(seed, samples())
    print(item.kind, item.filename, item.launch)
    print(item.data[:2000])
    for diagnostic in lint_document(read_bytes(item.data, filename=item.filename), launches=[item.launch]):
        print(diagnostic.code, diagnostic.message[:300])


if __name__ == "__main__":
    if sys.argv[1] == "--show":
        show(int(sys.argv[2]))
    else:
        main(int(sys.argv[1]), int(sys.argv[2]))
