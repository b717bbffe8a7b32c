"""One run, one golden file per way to show it.

Set DS_ACCUM_WRITE_GOLDEN=1 to write the files anew, and read the difference before it goes in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ds_accum.steps.html_page import html_page
from ds_accum.steps.json_report import json_report
from ds_accum.steps.look import Look
from ds_accum.steps.reading import Log, read_logs
from ds_accum.steps.summary import summarize
from ds_accum.steps.text_report import text_report
from tests.steps.example_run import eventful_run, example_run, write_log

GOLDEN = Path(__file__).parent / "golden"


def text(look: Look) -> Callable[[Log], str]:
    return lambda log: "\n".join(text_report(log, summarize(log.steps), look)) + "\n"


FORMATS: dict[str, Callable[[Log], str]] = {
    "text.txt": text(Look()),
    "text-40-columns.txt": text(Look(width=40)),
    "text-ascii.txt": text(Look(unicode=False)),
    "text-color.txt": text(Look(color=True)),
    "json.json": lambda log: json_report(log, summarize(log.steps)) + "\n",
    "html.html": lambda log: html_page(log, summarize(log.steps)),
}


def eventful_log(folder: Path) -> Log:
    """An eventful run, under a name that is the same everywhere."""
    log = read_logs([str(eventful_run(folder / "steps.jsonl"))])
    notes = tuple(note.replace(f"{folder}/", "") for note in log.notes)
    return Log(names=("steps.jsonl",), steps=log.steps, notes=notes)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return eventful_log(tmp_path_factory.mktemp("run"))


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_shown_is_the_golden_file(log: Log, name: str) -> None:
    shown = FORMATS[name](log)
    path = GOLDEN / name
    if os.environ.get("DS_ACCUM_WRITE_GOLDEN") == "1":
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text("utf-8")


@pytest.mark.parametrize("name", FORMATS)
def test_another_run_is_not_the_golden_file(tmp_path: Path, name: str) -> None:
    other = read_logs([str(write_log(tmp_path / "steps.jsonl", example_run()))])
    renamed = Log(names=("steps.jsonl",), steps=other.steps, notes=())
    assert FORMATS[name](renamed) != (GOLDEN / name).read_text("utf-8")


def test_every_way_has_a_golden_file_and_every_golden_file_a_way() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(FORMATS)


@pytest.mark.parametrize(("name", "width"), [("text.txt", 80), ("text-ascii.txt", 80), ("text-40-columns.txt", 40)])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    lines = (GOLDEN / name).read_text("utf-8").splitlines()
    assert width - 2 <= max(map(len, lines)) <= width


def test_a_terminal_that_knows_ascii_alone_gets_nothing_else() -> None:
    assert (GOLDEN / "text-ascii.txt").read_text("utf-8").isascii()


def test_colour_is_all_that_colour_adds() -> None:
    assert re.sub(r"\x1b\[\d+m", "", (GOLDEN / "text-color.txt").read_text("utf-8")) == (GOLDEN / "text.txt").read_text(
        "utf-8"
    )
