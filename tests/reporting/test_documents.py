"""A Document on a terminal, in Markdown, as a page, and results as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import PurePosixPath

import pytest

from ds_accum.reporting import (
    Document,
    Section,
    Table,
    json_text,
    plain,
    render_html,
    render_markdown,
    render_text,
)
from ds_accum.reporting.text import columns_of

SIZES = Table(
    headings=("part", "bytes", "formula"),
    rows=(
        ("parameters", "13.5 GB", "2 bytes x 6.74e9 parameters / tensor parallel 1, in the dtype of the model"),
        ("gradients", "27 GB", "4 bytes x 6.74e9"),
    ),
    words=frozenset({0, 2}),
    note="without fragmentation",
)
DOCUMENT = Document(
    title="Memory of a rank",
    lead=("it fits", "with 5 % to spare"),
    sections=(Section(title="By part", paragraphs=("All of <it> | here.",), table=SIZES),),
)
MANY_NUMBERS = Table(
    headings=tuple(f"heading {number}" for number in range(12)),
    rows=(tuple(f"{number}" for number in range(1_000_000, 1_000_012)),),
)


class TagCounter(HTMLParser):
    """Counts tags, and fails on one that is closed without having been opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def document_of(table: Table) -> Document:
    return Document(title="title", sections=(Section(title="section", table=table),))


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("table", [SIZES, MANY_NUMBERS], ids=["words", "numbers"])
def test_no_line_is_wider_than_the_terminal_and_no_cell_is_lost(table: Table, width: int) -> None:
    text = render_text(document_of(table), width=width)
    assert max(map(columns_of, text.splitlines())) <= width
    squeezed = "".join(text.split())
    for cell in (cell for row in table.rows for cell in row):
        for word in cell.split():
            assert word in squeezed


def test_a_table_that_fits_has_one_line_a_row_and_its_numbers_to_the_right() -> None:
    table = Table(headings=("stage", "bytes"), rows=(("0", "1 kB"), ("1", "10 kB")))
    assert render_text(document_of(table)).splitlines()[-3:] == ["stage  bytes", "0       1 kB", "1      10 kB"]


def test_sentences_of_the_lead_come_before_the_sections() -> None:
    lines = render_text(DOCUMENT).splitlines()
    assert lines[:4] == ["Memory of a rank", "- it fits", "- with 5 % to spare", ""]


def test_colour_is_there_only_where_it_is_asked_for() -> None:
    assert "\x1b[" not in render_text(DOCUMENT)
    assert "\x1b[1mMemory of a rank\x1b[0m" in render_text(DOCUMENT, color=True)


def test_no_text_can_act_on_a_terminal_in_markdown_or_on_a_page() -> None:
    hostile = "\x1b[2J<script>alert(1)</script> a|b `x` \n# y"
    document = Document(title=hostile, lead=(hostile,), sections=(Section(title=hostile, paragraphs=(hostile,)),))
    assert "\x1b" not in render_text(document)
    assert "<script" not in render_html(document)
    assert "\\<script\\>" in render_markdown(document)
    assert not [line for line in render_markdown(document).splitlines() if line.startswith("# y")]


def test_the_page_is_whole_and_has_every_cell_once() -> None:
    parser = TagCounter()
    parser.feed(render_html(DOCUMENT))
    assert parser.open == []
    text = "".join(parser.text).replace("\xa0", " ")
    for cell in (*SIZES.headings, *(cell for row in SIZES.rows for cell in row), SIZES.note):
        assert text.count(cell) >= 1


def test_the_page_shows_the_drawing_and_the_terminal_its_lines() -> None:
    section = Section(title="timeline", figure="<svg viewBox='0 0 1 1'></svg>", figure_text=("0 FFBB", "1 .FBFB"))
    document = Document(title="title", sections=(section,))
    assert "<svg viewBox" in render_html(document)
    assert "FFBB" not in render_html(document)
    assert render_text(document).splitlines()[-2:] == ["0 FFBB", "1 .FBFB"]
    assert "```text\n0 FFBB\n1 .FBFB\n```" in render_markdown(document)


def test_a_page_without_a_drawing_shows_the_lines() -> None:
    section = Section(title="timeline", figure_text=("0 FFBB <", "1 .FBFB"))
    assert "<pre>0 FFBB &lt;\n1 .FBFB</pre>" in render_html(Document(title="title", sections=(section,)))


class Color(Enum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Inner:
    share: Fraction
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Outer:
    name: str | None
    inner: Inner
    names: frozenset[str]
    color: Color
    path: PurePosixPath
    by_size: dict[int, bool]


def test_results_become_plain_json() -> None:
    value = Outer(
        name=None,
        inner=Inner(share=Fraction(1, 4), values=(1.5, float("nan"), float("inf"), -float("inf"))),
        names=frozenset({"b", "a"}),
        color=Color.RED,
        path=PurePosixPath("a/b"),
        by_size={1: True},
    )
    assert json.loads(json_text(value)) == {
        "name": None,
        "inner": {"share": 0.25, "values": [1.5, "NaN", "Infinity", "-Infinity"]},
        "names": ["a", "b"],
        "color": "red",
        "path": "a/b",
        "by_size": {"1": True},
    }


def test_what_has_no_place_in_json_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no place in a JSON report"):
        plain(object())
