"""The page: whole, inert, without a network, and with every curve inside its box."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ds_accum.steps.html_page import html_page
from ds_accum.steps.reading import Log, read_logs
from ds_accum.steps.summary import summarize
from tests.steps.example_run import eventful_run, report, write_log

VOID = {"meta", "path"}


class Checked(HTMLParser):
    """A page whose elements are closed in the order in which they were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.attributes: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(page: str) -> Checked:
    parser = Checked()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def page_of(log: Log) -> str:
    return html_page(log, summarize(log.steps))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return read_logs([str(eventful_run(tmp_path_factory.mktemp("run") / "steps.jsonl"))])


def test_the_page_asks_for_nothing_and_runs_nothing(log: Log) -> None:
    page = page_of(log)
    parser = checked(page)
    assert not {"script", "link", "img", "iframe", "a"} & set(parser.seen)
    assert not [name for name, _ in parser.attributes if name in ("src", "href", "onload", "xlink:href")]
    assert "default-src 'none'" in page and "://" not in page and "url(" not in page and "@import" not in page


def test_the_page_is_for_light_and_dark_and_for_a_phone(log: Log) -> None:
    page = page_of(log)
    assert "prefers-color-scheme: dark" in page and "width=device-width" in page
    # Both say every colour that is used.
    light, dark = (set(re.findall(r"(--\w+):", part)) for part in page.split("prefers-color-scheme: dark", 1))
    assert light == dark == set(re.findall(r"var\((--\w+)\)", page))


def test_every_curve_stays_in_its_box(log: Log) -> None:
    curves = re.findall(r'class="(?:curve|band)" d="([^"]+)"', page_of(log))
    assert len(curves) >= 7
    for curve in curves:
        for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", curve):
            assert 0 <= float(x) <= 1000 and -0.01 <= float(y) <= 100.01


def test_skipped_steps_are_drawn(log: Log) -> None:
    assert re.findall(r'class="skip" d="([^"]+)"', page_of(log))[0].count("M") == 4


def test_a_million_steps_make_no_larger_page_than_a_few_hundred(log: Log, tmp_path: Path) -> None:
    many = read_logs([str(write_log(tmp_path / "many.jsonl", [report(step) for step in range(1, 3001)]))])
    for step in range(len(many.steps)):
        many.steps.loss[step] = float(step % 7)
    page = page_of(many)
    assert 'class="band"' in page
    assert len(page) < 120_000


def test_one_step_is_drawn_as_a_line_across(tmp_path: Path) -> None:
    page = page_of(read_logs([str(write_log(tmp_path / "one.jsonl", [report(5)]))]))
    checked(page)
    assert 'd="M0 50.00H1000"' in page


def test_a_name_and_a_reason_can_not_become_part_of_the_page(log: Log, tmp_path: Path) -> None:
    path = tmp_path / "<script>alert(1)<&.jsonl"
    write_log(path, [report(1, applied=False, skipped_because="<img src=x>")])
    read = read_logs([str(path)])
    page = page_of(Log(names=read.names, steps=read.steps, notes=("<b>",)))
    assert "script" not in checked(page).seen and "img" not in checked(page).seen
    assert "&lt;script&gt;alert(1)&lt;&amp;.jsonl" in page and "&lt;img src=x&gt;" in page and "&lt;b&gt;" in page


def test_tokens_that_nobody_counts_have_no_chart(tmp_path: Path) -> None:
    path = write_log(tmp_path / "steps.jsonl", [report(step, num_tokens=None) for step in (1, 2)])
    assert "Tokens a step" not in page_of(read_logs([str(path)]))
