from __future__ import annotations

import re

import pytest

from ds_accum.compare.projection import Projection
from ds_accum.compare.reports import render_terminal
from ds_accum.reporting.text import columns_of, padded, printable, shortened
from tests.compare.example import EXAMPLES, comparison, replaced

PROJECTION = Projection(worlds=(64, 16384))


@pytest.mark.parametrize("width", [40, 57, 80, 132])
@pytest.mark.parametrize("name", EXAMPLES)
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    text = render_terminal(EXAMPLES[name](), width=width, projection=PROJECTION)
    assert max(map(columns_of, text.splitlines())) <= width


@pytest.mark.parametrize("name", EXAMPLES)
def test_there_is_no_colour_unless_asked_for_and_colour_is_all_it_adds(name: str) -> None:
    plain = render_terminal(EXAMPLES[name]())
    colored = render_terminal(EXAMPLES[name](), color=True)
    assert "\x1b" not in plain
    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[\d+m", "", colored) == plain


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_variant_has_a_line(name: str) -> None:
    measured = EXAMPLES[name]()
    lines = render_terminal(measured, width=200).splitlines()
    for result in measured.results:
        assert any(line.startswith(result.name) for line in lines)


def test_the_verdict_comes_first_and_signs_say_what_colour_says() -> None:
    lines = render_terminal(comparison()).splitlines()
    assert lines[0].startswith("+ all 4 token variants agree")
    assert any(line.startswith("! all 4 stock variants leave the truth") for line in lines)


def test_projections_are_called_projections_and_are_shown_when_asked_for() -> None:
    assert "rojec" not in render_terminal(comparison())
    text = render_terminal(comparison(), projection=PROJECTION)
    assert "Projection, not measured" in text
    assert "projected by formula, not measured" in text
    assert "16,384" in text


def test_what_an_error_holds_can_not_move_the_cursor() -> None:
    measured = replaced(comparison(), "ddp", status="failed", failure="boom\x1b[2J\x1b]0;title\x07\r\x9b31m\u202e end")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", render_terminal(measured))


def test_wide_letters_count_twice_and_accents_not_at_all() -> None:
    assert columns_of("変種") == 4
    assert columns_of("e\u0301") == 1
    assert padded("変", 4, to_left=False) == "  変"


def test_a_long_name_keeps_both_ends() -> None:
    assert shortened("zero-3 stock overlap_comm=true", 16) == "zero-3 ..mm=true"
    assert shortened("short", 16) == "short"
    assert printable("a\n b\tc") == "a b c"
