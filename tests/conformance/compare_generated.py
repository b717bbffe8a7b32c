"""Compares the linter with DeepSpeed on a range of generated configs, as loaded: for the tests, and by hand.

python compare_generated.py FIRST_SEED COUNT      each disagreement as a line of JSON, reduced; then the tally
python compare_generated.py --show SEED           one config as it was generated, with what both say to it
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from agreement import Comparison, compare_at_load, lint_bytes
from generated import Case, generate
from reduction import reduce

from ds_accum.config.launch import Launch


def main(first: int, count: int) -> None:
    refused = 0
    with tempfile.TemporaryDirectory(dir=in_memory()) as name:
        folder = Path(name)
        for seed in range(first, first + count):
            case = generate(seed)
            comparison = compare(case, folder)
            refused += comparison.verdict.refused
            if comparison.disagreement is not None:
                smallest = reduced(case, comparison, folder)
                print(json.dumps({"seed": seed, "kind": smallest.disagreement, "report": str(smallest)}), flush=True)
    print(json.dumps({"compared": count, "refused": refused}), flush=True)


def show(seed: int) -> None:
    with tempfile.TemporaryDirectory(dir=in_memory()) as name:
        print(compare(generate(seed), Path(name)))


def compare(case: Case, folder: Path) -> Comparison:
    """What both say, for the launch of the case and, where they agree that it loads, with its world size kept back.

    An error that is known without the world size holds at every one, so it must not be there for a config that loads.
    """
    comparison = compare_at_load(encoded(case), case.launch, folder)
    if comparison.disagreement is None and not comparison.verdict.refused:
        unknown = replace(case.launch, world_size=None)
        return replace(comparison, launch=unknown, diagnostics=lint_bytes(comparison.data, unknown))
    return comparison


def encoded(case: Case) -> bytes:
    """The bytes of the file; a lone surrogate makes them no UTF-8, as in a real file."""
    return case.text.encode("utf-8", "surrogatepass")


def reduced(case: Case, comparison: Comparison, folder: Path) -> Comparison:
    """The smallest case that shows the same disagreement."""

    def fails(text: str, launch: Launch) -> bool:
        found = compare(Case(text=text, launch=launch), folder)
        return found.disagreement is not None and found.signature == comparison.signature

    text, launch = reduce(case.text, case.launch, fails)
    return compare(Case(text=text, launch=launch), folder)


def in_memory() -> str | None:
    """Where files cost nothing, if there is such a place: every config is written to one, since DeepSpeed reads files."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


if __name__ == "__main__":
    if sys.argv[1] == "--show":
        show(int(sys.argv[2]))
    else:
        main(int(sys.argv[1]), int(sys.argv[2]))
