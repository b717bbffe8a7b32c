"""One result, one golden file per format.

Set DS_ACCUM_WRITE_GOLDEN=1 to write the files anew, and read the difference before it goes in.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ds_accum.lint.reporters import REPORTERS, Terminal, reporter_of
from ds_accum.lint.result import LintResult

GOLDEN = Path(__file__).parent / "golden"

# Golden file -> format, terminal.
CASES = {
    "full.txt": ("full", Terminal()),
    "full-40-columns.txt": ("full", Terminal(width=40)),
    "full-color.txt": ("full", Terminal(color=True)),
    "concise.txt": ("concise", Terminal(color=True)),
    "json.json": ("json", Terminal(color=True)),
    "sarif.json": ("sarif", Terminal(color=True)),
    "github.txt": ("github", Terminal(color=True)),
    "gitlab.json": ("gitlab", Terminal(color=True)),
    "junit.xml": ("junit", Terminal(color=True)),
    "statistics.txt": ("statistics", Terminal()),
}


def text_of(result: LintResult, name: str) -> str:
    format_name, terminal = CASES[name]
    return "".join(reporter_of(format_name)(result, terminal))


@pytest.mark.parametrize("name", CASES)
def test_a_report_is_the_golden_file(result: LintResult, name: str) -> None:
    text = text_of(result, name)
    path = GOLDEN / name
    if os.environ.get("DS_ACCUM_WRITE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CASES)
def test_a_report_that_changed_is_not_the_golden_file(result: LintResult, name: str) -> None:
    first, *rest = result.files
    changed = replace(first, diagnostics=(replace(first.diagnostics[0], code="DSA199", message="another sentence"),))
    assert text_of(replace(result, files=(changed, *rest)), name) != (GOLDEN / name).read_text(encoding="utf-8")


def test_every_format_has_a_golden_file_and_every_golden_file_a_format() -> None:
    assert {format_name for format_name, _ in CASES.values()} == set(REPORTERS)
    assert {path.name for path in GOLDEN.iterdir()} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_nothing_that_a_terminal_would_act_on_gets_through(result: LintResult, name: str) -> None:
    text = text_of(result, name)
    if name == "full-color.txt":
        # Our own colours, and only those.
        for code in ("0", "1", "2", "1;31", "1;33", "1;36"):
            text = text.replace(f"\x1b[{code}m", "")
    assert [character for character in text if not character.isprintable() and character != "\n"] == []
