"""Widths, wrapping and colour."""

from __future__ import annotations

import pytest

from ds_accum.lint.reporters.terminal import Terminal, width_of, wrapped


@pytest.mark.parametrize(("text", "columns"), [("abc", 3), ("名前", 4), ("e\u0301", 1), ("ｈ", 2), ("é", 1), ("", 0)])
def test_a_text_takes_the_columns_of_its_characters(text: str, columns: int) -> None:
    assert width_of(text) == columns


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two three", 7, ["one two", "three"]),
        ("one two", 7, ["one two"]),
        ("a-long-word-that-is-never-broken and more", 10, ["a-long-word-that-is-never-broken", "and more"]),
        ("名前 名前", 8, ["名前", "名前"]),
        ("two  spaces", 80, ["two  spaces"]),
        ("", 10, [""]),
    ],
)
def test_a_sentence_is_broken_at_spaces_only(text: str, width: int, lines: list[str]) -> None:
    assert list(wrapped(text, width)) == lines


def test_colour_is_written_only_where_it_is_wanted() -> None:
    assert Terminal(color=True).paint("x", "bold", "red") == "\x1b[1;31mx\x1b[0m"
    assert Terminal(color=True).paint("", "bold") == ""
    assert Terminal(color=False).paint("x", "bold", "red") == "x"
