"""Offsets and places of the protocol are the same place, in every encoding and with every line end."""

from __future__ import annotations

import pytest
from lsprotocol.types import Position, PositionEncodingKind

from ds_accum.lsp.positions import Places

# U+2028 and the form feed end a line for `str.splitlines`, not for the protocol.
TEXT = '{\r\n  "é": "😋",\n"a\u2028b\x0c": 1\r}'

ENCODINGS = [*PositionEncodingKind]


@pytest.mark.parametrize(
    ("encoding", "character"),
    [(PositionEncodingKind.Utf8, 14), (PositionEncodingKind.Utf16, 11), (PositionEncodingKind.Utf32, 10)],
)
def test_a_character_counts_as_many_units_as_its_encoding_needs(encoding: PositionEncodingKind, character: int) -> None:
    offset = TEXT.index("😋") + 2  # behind the closing quotation mark
    assert Places(TEXT, encoding).position(offset) == Position(line=1, character=character)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_place_leads_back_to_its_offset(encoding: PositionEncodingKind) -> None:
    places = Places(TEXT, encoding)
    for offset in range(len(TEXT) + 1):
        if TEXT[:offset].endswith("\r") and TEXT[offset : offset + 1] == "\n":
            continue  # inside of a line end there is no place
        assert places.offset(places.position(offset)) == offset, offset


def test_a_line_ends_at_the_three_line_ends_only() -> None:
    places = Places(TEXT)
    assert places.position(len(TEXT)) == Position(line=3, character=1)
    assert places.position(TEXT.index("\r\n") + 1) == Position(line=0, character=1)


@pytest.mark.parametrize(
    ("position", "offset"),
    [
        (Position(line=0, character=99), 1),
        (Position(line=99, character=0), len(TEXT)),
        # In the middle of a pair of surrogates: behind the character.
        (Position(line=1, character=9), TEXT.index("😋") + 1),
    ],
)
def test_a_place_that_is_none_is_the_nearest_one(position: Position, offset: int) -> None:
    assert Places(TEXT).offset(position) == offset


def test_an_empty_text_has_one_place() -> None:
    assert Places("").position(5) == Position(line=0, character=0)
    assert Places("").offset(Position(line=0, character=3)) == 0


def test_half_a_surrogate_pair_is_one_unit() -> None:
    assert Places("\ud83dx").position(2) == Position(line=0, character=2)
