"""The line that a diagnostic is about, with the carets exactly under it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_accum.config.document import read_text
from ds_accum.lint.reporters.excerpt import Excerpt, excerpt_of
from ds_accum.lint.reporters.terminal import width_of


def excerpt(text: str, start: int, end: int, width: int = 60) -> Excerpt:
    document = read_text(text)
    return excerpt_of(document, document.position(start), document.position(end), width=width)


def marked(text: str, width: int = 60) -> tuple[str, str]:
    """The shown line, and the carets below it, for the part of a text between « and »."""
    start, end = text.index("«"), text.index("»") - 1
    shown = excerpt(text.replace("«", "").replace("»", ""), start, end, width)
    return shown.text, " " * shown.caret_column + "^" * shown.caret_columns


@pytest.mark.parametrize(
    ("text", "line", "carets"),
    [
        ('{"a": «1»}', '{"a": 1}', "      ^"),
        ('\t«"a"»: 1', '    "a": 1', "    ^^^"),
        ('x\t«"a"»\t: 1', 'x   "a" : 1', "    ^^^"),
        ('"名前": «1»', '"名前": 1', "        ^"),
        ("«名前»: 1", "名前: 1", "^^^^"),
        ("e\u0301te\u0301: «1»", "e\u0301te\u0301: 1", "     ^"),
        ("a\x1b[0m\u202e: «1»", r"a\x1b[0m\u202e: 1", " " * 16 + "^"),
        ("a: «'\u200b'»", r"a: '\u200b'", "   ^^^^^^^^"),
        ("{«»}", "{}", " ^"),
        ("«»", "", "^"),
        ("a: 1«»", "a: 1", "    ^"),
        ("\ufeff{«a»: 1}", "{a: 1}", " ^"),
    ],
)
def test_carets_stand_under_what_is_meant(text: str, line: str, carets: str) -> None:
    assert marked(text) == (line, carets)


def test_a_span_over_several_lines_is_underlined_to_the_end_of_its_first() -> None:
    assert marked('{\n  "a": «{  \n    "b": 1\n  }»\n}') == ('  "a": {  ', "       ^")
    shown = excerpt("{\r\n  a: [1,\r\n 2]}", 8, 16)
    assert (shown.line_number, shown.text, shown.caret_columns) == (2, "  a: [1,", 3)


def test_a_place_behind_the_last_line_end_is_a_line_of_its_own() -> None:
    shown = excerpt("{\n", 2, 2)
    assert (shown.line_number, shown.text, shown.caret_column, shown.caret_columns) == (2, "", 0, 1)


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (0, 100, "HERE" + "y" * 20 + "..."),
        (100, 0, "..." + "x" * 20 + "HERE"),
        (100, 100, "..." + "x" * 8 + "HERE" + "y" * 12 + "..."),
        (10, 100, "..." + "x" * 8 + "HERE" + "y" * 12 + "..."),
        (20, 6, "x" * 20 + "HERE" + "y" * 6),
    ],
)
def test_a_long_line_is_cut_around_the_place(before: int, after: int, line: str) -> None:
    shown, carets = marked("x" * before + "«HERE»" + "y" * after, width=30)
    assert shown == line
    assert shown[carets.index("^") : len(carets)] == "HERE"


def test_a_place_longer_than_the_terminal_is_shown_from_its_start() -> None:
    shown, carets = marked("xxxx«" + "y" * 100 + "»", width=30)
    assert shown == "xxxx" + "y" * 20 + "..."
    assert carets == " " * 4 + "^" * 20


def test_a_line_of_a_million_characters_is_cut_without_being_looked_through() -> None:
    text = "x" * 400_000 + "«HERE»" + "y" * 500_000
    shown, carets = marked(text, width=40)
    assert shown[carets.index("^") : len(carets)] == "HERE"
    assert len(shown) <= 40


# Characters of every width, and some that are escaped.
_CHARACTERS = st.text(st.sampled_from('ab ,"{\t名e\u0301\u202e\x1b\u200b\xa0é'), max_size=60)


@given(_CHARACTERS, st.integers(0, 60), st.integers(0, 60), st.integers(20, 80))
def test_any_line_fits_and_any_place_in_it_is_marked(text: str, start: int, length: int, width: int) -> None:
    start = min(start, len(text))
    shown = excerpt(text, start, min(start + length, len(text)), width)
    assert width_of(shown.text) <= width
    assert shown.text.isprintable()
    assert shown.caret_columns >= 1
    # One caret may stand behind the text, where a place has no character.
    assert shown.caret_column + shown.caret_columns <= width_of(shown.text) + 1
