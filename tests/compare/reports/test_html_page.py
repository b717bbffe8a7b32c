from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from ds_accum.compare.reports import render_html
from ds_accum.compare.reports.figures import DRAWINGS, svg
from ds_accum.compare.verdict import verdict
from tests.compare.example import EXAMPLES, comparison, extreme

PageOf = Callable[[str], str]

VOID = {"meta", "br", "link", "img"}


class Balanced(HTMLParser):
    """Complains of an element that is closed where another one is open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_page_is_well_formed_and_needs_nothing_from_elsewhere(page_of: PageOf, name: str) -> None:
    parser = Balanced()
    parser.feed(page_of(name))
    assert parser.open == []
    assert all(link.startswith("#") for link in parser.links)
    assert not re.search(r"url\((?!#)|@import|<script|<link|<img", page_of(name))
    assert re.findall(r"https?://[^\"' ]+", re.sub(r'xmlns(:\w+)?="[^"]*"', "", page_of(name))) == []
    assert (
        "viewport" in page_of(name)
        and "prefers-color-scheme: dark" in page_of(name)
        and "@media print" in page_of(name)
    )


def test_the_verdict_stands_before_the_first_figure_and_configs_at_the_end(page_of: PageOf) -> None:
    page = page_of("whole")
    first = verdict(comparison())[0].text.partition(" (")[0]
    places = [page.index(text) for text in (first, 'id="figure-loss"', "What was run", "as DeepSpeed was given them")]
    assert places == sorted(places)
    assert "&quot;stage&quot;: 3" in page and "2.13.0+cpu" in page


@pytest.mark.parametrize("name", ["extreme"])
def test_the_same_comparison_is_the_same_page(page_of: PageOf, name: str) -> None:
    assert render_html(EXAMPLES[name]()) == page_of(name)
    assert not re.search(r"20\d\d-\d\d-\d\d", page_of(name))


def test_another_process_draws_the_same(page_of: PageOf) -> None:
    code = "from tests.compare.example import one_variant; from ds_accum.compare.reports import render_html; print(render_html(one_variant()), end='')"
    drawn = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert drawn.stdout == page_of("one-variant")


def test_names_and_errors_are_no_markup(page_of: PageOf) -> None:
    assert "&lt;script&gt;" in page_of("extreme")
    assert "rank 1 ran out of memory &lt;&amp;&gt;" in page_of("failures")


def test_projections_are_labelled_and_there_only_when_asked_for(page_of: PageOf) -> None:
    assert "rojection" not in page_of("whole")
    page = page_of("failures")
    assert "<h2>Projection, not measured</h2>" in page
    assert "projected by formula, not measured" in page


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("name", DRAWINGS)
def test_a_figure_takes_its_ink_from_the_page(name: str, narrow: bool) -> None:
    drawn = svg(extreme(), name, narrow=narrow)  # type: ignore[arg-type]
    assert drawn is not None
    root = ElementTree.fromstring(drawn)
    assert root.get("width") is None and root.get("viewBox")
    styles = " ".join(element.get("style", "") for element in root.iter())
    assert "currentColor" in styles
    painted = {color.lower() for color in re.findall(r"(?:fill|stroke): (#[0-9a-fA-F]{3,6})", styles)}
    assert not painted & {"#000000", "#ffffff", "#000", "#fff", "#010203"}


def test_a_dollar_sign_in_a_name_is_no_formula() -> None:
    drawn = svg(extreme(), "memory", narrow=False)
    assert drawn is not None and "mathdefault" not in drawn


def test_an_axis_of_errors_is_labelled_with_numbers() -> None:
    drawn = svg(comparison(), "error", narrow=False)
    assert drawn is not None
    assert ">1e-05<" in drawn and ">tolerance<" in drawn


def test_without_matplotlib_the_error_names_the_extra() -> None:
    code = """
import sys
sys.modules["matplotlib"] = None
from ds_accum.compare.reports import render_html, render_json, render_markdown, render_terminal
from ds_accum.errors import UsageError
from tests.compare.example import comparison
for render in (render_json, render_markdown, render_terminal):
    assert render(comparison())
try:
    render_html(comparison())
except UsageError as error:
    print(error.remedy)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert "pip install 'ds-accum[report]'" in said.stdout


def test_reports_other_than_the_page_load_no_matplotlib() -> None:
    code = """
import sys
from ds_accum.compare.reports import render_json, render_markdown, render_terminal
assert not {"matplotlib", "numpy", "torch"} & {*sys.modules}
"""
    subprocess.run([sys.executable, "-c", code], timeout=120, check=True)
