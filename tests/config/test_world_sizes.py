"""Lists and ranges of world sizes."""

from __future__ import annotations

import pytest

from ds_accum.config.world_sizes import parse_world_sizes


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("8", (8,)),
        ("64,8", (8, 64)),
        ("1, 2, 8-10", (1, 2, 8, 9, 10)),
        ("4-4", (4,)),
        ("1-3,2-5", (1, 2, 3, 4, 5)),
        ("1-1000", tuple(range(1, 1001))),
    ],
)
def test_world_sizes_are_read_in_ascending_order(text: str, sizes: tuple[int, ...]) -> None:
    assert parse_world_sizes(text) == sizes


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "'' is neither a number of ranks nor a range such as 8-16"),
        ("8,", "'' is neither"),
        ("eight", "'eight' is neither"),
        ("8.0", "'8.0' is neither"),
        ("-8", "'-8' is neither"),
        ("٨", "'٨' is neither"),
        ("0", "'0': a world has at least 1 rank"),
        ("0-4", "'0-4': a world has at least 1 rank"),
        ("8-4", "'8-4' ends before it begins"),
        ("1-1001", "more than 1,000 world sizes"),
        ("1-600,601-1200", "more than 1,000 world sizes"),
        ("1-999999999", "more than 1,000 world sizes"),
        ("9" * 5000, "is neither"),
    ],
)
def test_what_is_no_world_size_is_refused_with_the_part_that_is_wrong(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_world_sizes(text)
