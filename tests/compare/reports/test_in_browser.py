"""The page as a reader has it: on a screen, on a phone, in the dark, on paper."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.compare.example import EXAMPLES
from tests.compare.reports.browser import Browser, start_browser

PageOf = Callable[[str], str]

FIGURES = {"figure-loss", "figure-error", "figure-communication", "figure-memory", "figure-speed"}
DRAWN = [name for name in EXAMPLES if name != "not-measured"]
WIDE, PHONE = 1100, 360


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    return start_browser(tmp_path_factory.mktemp("browser"))


def colors(picture: Path) -> dict[tuple[int, int, int], int]:
    image = Image.open(picture).convert("RGB")
    return {color: count for count, color in image.getcolors(image.width * image.height)}


def brightness(color: tuple[int, int, int]) -> float:
    return sum(color) / 3


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_is_not_blank_and_the_console_stays_silent(browser: Browser, page_of: PageOf, dark: bool) -> None:
    picture, console = browser.screenshot(page_of("whole"), width=WIDE, height=4000, dark=dark)
    assert console == []
    found = colors(picture)
    page = max(found, key=found.__getitem__)
    assert brightness(page) < 60 if dark else brightness(page) > 240
    other = sum(count for color, count in found.items() if math.dist(color, page) > 90)
    assert other > 0.01 * sum(found.values())
    # The first two colours of bars and curves are there in both.
    for wanted in ((59, 125, 216), (224, 123, 22)):
        assert sum(count for color, count in found.items() if math.dist(color, wanted) < 12) > 500


def test_a_blank_page_is_seen_to_be_blank(browser: Browser) -> None:
    picture, _ = browser.screenshot("<!doctype html><title>nothing</title>", width=WIDE, height=500)
    assert len(colors(picture)) == 1


def test_a_word_on_the_console_is_seen(browser: Browser) -> None:
    _, console = browser.screenshot("<script>console.error('out loud')</script>", width=WIDE, height=500)
    assert len(console) == 1 and "out loud" in console[0]


@pytest.mark.parametrize("width", [WIDE, PHONE])
@pytest.mark.parametrize("name", DRAWN)
def test_every_figure_is_drawn_once_and_fits_the_screen(
    browser: Browser, page_of: PageOf, name: str, width: int
) -> None:
    measured = browser.measure(page_of(name), width=width)
    assert set(measured["figures"]) == FIGURES
    for drawn in measured["figures"].values():
        (shown,) = [svg for svg in drawn if svg["size"][0] > 0]
        assert shown["size"][0] <= width and shown["size"][1] > 50
        assert shown["marks"] > 10
        # What is smaller is not read.
        assert min(shown["texts"]) >= 9
    assert measured["width"] <= width
    assert measured["dead"] == [] and measured["twice"] == []


def test_where_nothing_was_measured_the_page_says_so(browser: Browser, page_of: PageOf) -> None:
    measured: dict[str, Any] = browser.measure(page_of("not-measured"), width=PHONE)
    assert measured["figures"] == {}
    assert page_of("not-measured").count("Nothing was measured that could be drawn here") == len(FIGURES)
    assert measured["width"] <= PHONE


def test_it_prints(browser: Browser, page_of: PageOf) -> None:
    paper = browser.print_pdf(page_of("whole"))
    assert paper.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", paper)) <= 20
