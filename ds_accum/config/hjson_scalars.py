"""Scalars of an Hjson text, exactly as the `hjson` package reads them: words, numbers, and strings of three kinds.

The methods follow functions of hjson's `decoder.py`, named at each.
"""

from __future__ import annotations

import math
import re
from typing import Any

from ds_accum.config.hjson_state import HjsonState, StopReading, end_of
from ds_accum.config.wording import shortened

__all__ = ["END_OF_WORD", "WORDS", "Scalars"]

WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
END_OF_WORD = r"[ \t]*(?=[,}\]#\n\r]|/[/*]|\Z)"
"""What ends an unquoted word or number in Hjson: in `[1 2]` there is no number."""

_LINE = re.compile(r"[^\n\r]*")
_INDENTATION = re.compile(r"[ \t\r]*")
_match_word = re.compile(r"(true|false|null)[^\S\n\r]*(?=[,}\]#\n\r]|/[/*]|\Z)").match
_match_number = re.compile(rf"(-?(?:0|[1-9]\d*))((?:\.\d+)?(?:[eE][-+]?\d+)?){END_OF_WORD}").match
_match_chunk = {
    '"': re.compile(r'([^"\\\x00-\x1f]*)(["\\\x00-\x1f]|\Z)').match,
    "'": re.compile(r"([^'\\\x00-\x1f]*)(['\\\x00-\x1f]|\Z)").match,
}
_ESCAPES = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class Scalars(HjsonState):
    """Reads what is neither an object nor a list, whatever Hjson allows."""

    def scalar(self, position: int) -> tuple[Any, int, int]:
        """hjson's `_scan_once`, less brackets. Returns the value, where it ends, and where reading goes on."""
        text = self.text
        if text.startswith("'''", position):
            value, end = self._multiline_string(position)
            return value, end, end
        if text[position] in "\"'":
            value, end, _ = self.string(position)
            return value, end, end
        return self._quoteless(position)

    def _quoteless(self, position: int) -> tuple[Any, int, int]:
        """hjson's `scantfnns`: a word or a number if something ends it, else a string up to the end of the line."""
        text = self.text
        word = _match_word(text, position)
        if word is not None:
            return WORDS[word[1]], word.end(1), word.end()
        number = _match_number(text, position)
        if number is not None:
            end = number.end(2)
            return self.number(number[1] + number[2], bool(number[2]), position, end), end, number.end()
        raw = text[position : end_of(_LINE, text, position)]
        end = position + len(raw.rstrip(" \t"))
        if self.swallowed is None and (raw.count("}") > raw.count("{") or raw.count("]") > raw.count("[")):
            self.swallowed = (position, end)
        return raw.strip(), end, position + len(raw)

    def number(self, token: str, is_float: bool, start: int, end: int) -> int | float:
        """The number that a token is; an infinite one where hjson, or Python below it, raises."""
        if not is_float:
            if len(token) - token.startswith("-") <= self.limits.integer_digits:
                return int(token)
            self.number_out_of_range(start, end, f"more than {self.limits.integer_digits} digits")
            return -math.inf if token.startswith("-") else math.inf
        number = float(token)
        if math.isinf(number):
            # hjson asks whether int(number) == number, which raises OverflowError.
            self.number_out_of_range(start, end, "too large for a 64-bit float")
        elif abs(number) < 1e10 and int(number) == number:
            return int(number)
        return number

    def string(self, position: int) -> tuple[str, int, bool]:
        """hjson's `scanstring`. Returns the string, where it ends, and whether a quote ends it."""
        text, quote = self.text, self.text[position]
        match_chunk = _match_chunk[quote]
        pieces: list[str] = []
        end = position + 1
        while True:
            chunk = match_chunk(text, end)
            assert chunk is not None, "the pattern matches everywhere"
            pieces.append(chunk[1])
            end = chunk.end()
            stop = chunk[2]
            if stop == quote:
                return "".join(pieces), end, True
            if stop == "\\" and text[end : end + 1] not in ("", "\n", "\r"):
                piece, end = self._escape(end)
                pieces.append(piece)
            elif stop in ("", "\\", "\n", "\r"):
                return self._unclosed_string(position)
            else:
                code = f"U+{ord(stop):04X}"
                escape = {"\t": "\\t", "\b": "\\b", "\f": "\\f"}.get(stop, f"\\u{ord(stop):04x}")
                message = f"the control character {code} can't stand in a string as it is"
                self.mistake(message, end - 1, end, remedy=f"write {escape}")
                pieces.append(stop)

    def _escape(self, position: int) -> tuple[str, int]:
        """What a backslash before `position` and the characters from there mean, and where that ends."""
        text = self.text
        character = text[position]
        if character in _ESCAPES:
            return _ESCAPES[character], position + 1
        if character != "u":
            remedy = "a backslash itself is written \\\\; paths may use / on every system"
            message = f"the escape {shortened(text[position - 1 : position + 1])} does not exist"
            self.mistake(message, position - 1, position + 1, remedy=remedy)
            return "\\" + character, position + 1
        code = self._hexadecimal(position)
        if code is None or code < 0:
            message = (
                f"expected four hexadecimal digits after '\\u', found {shortened(text[position + 1 : position + 5])}"
            )
            # chr() of a negative number is a ValueError of Python's, not one of hjson's.
            self.mistake(message, position - 1, position + 1, crash=code is not None)
            return "\\u", position + 1
        end = position + 5
        if code & 0xFC00 == 0xD800 and text.startswith("\\u", end):
            low = self._hexadecimal(end + 1, is_second=True)
            if low is None:
                self.mistake("expected four hexadecimal digits after '\\u'", end, end + 2)
            elif low & 0xFC00 == 0xDC00:
                return chr(0x10000 + ((code - 0xD800) << 10 | low - 0xDC00)), end + 6
        return chr(code), end

    def _hexadecimal(self, position: int, *, is_second: bool = False) -> int | None:
        """What hjson takes for the four digits behind the u at `position`: whatever int() does, but no 0x."""
        digits = self.text[position + 1 : position + 5]
        if len(digits) != 4 or digits[1] in "xX":
            # Of a second escape hjson only looks whether it completes the first.
            return -1 if is_second else None
        try:
            return int(digits, 16)
        except ValueError:
            return None

    def _unclosed_string(self, position: int) -> tuple[str, int, bool]:
        text = self.text
        end = end_of(_LINE, text, position)
        trimmed = position + len(text[position:end].rstrip())
        quote = text[position]
        where = "its line" if end < len(text) else "the text"
        self.mistake(
            f"the string is not closed before the end of {where}: expected {quote}",
            position,
            trimmed,
            remedy=f"close it with {quote}; a line break in a string is written \\n",
        )
        # The best guess: the quote is missing before the comma that ends the line.
        guess = text[position + 1 : trimmed].rstrip(",").rstrip()
        return guess, end, False

    def _multiline_string(self, position: int) -> tuple[str, int]:
        """hjson's `mlscanstring`: what is between ''' and ''', less the indentation of the first of them."""
        text = self.text
        indentation = self._indentation_of_quotes(position)
        start = end_of(_INDENTATION, text, position + 3)
        end = text.find("'''", start)
        if indentation is None or end < 0:
            # Where hjson looks for a line end, or for anything behind the quotes, in vain, it gets an IndexError.
            is_crash = indentation is None or start == len(text)
            if end < 0:
                message = f"the ''' of line {self.line(position)} is never closed: expected '''"
            else:
                message = "a ''' string needs a line end somewhere in the text, or hjson fails to read it"
            self.mistake(message, position, position + 3, crash=is_crash)
            if end < 0:
                raise StopReading
        first, *others = text[start:end].split("\n")
        lines = [_without_indentation(line, indentation or 0) for line in others]
        # Blanks up to the first line end do not count, and neither do that line end and the last one.
        string = "\n".join(lines if not first and lines else [first, *lines]).replace("\r", "")
        return string.removesuffix("\n"), end + 3

    def _indentation_of_quotes(self, position: int) -> int | None:
        """Characters between the last line end and the quotes; hjson goes on backwards from the end of the text."""
        text = self.text
        line_end = text.rfind("\n", 0, position)
        if line_end >= 0:
            return position - 1 - line_end
        line_end = text.rfind("\n")
        return None if line_end < 0 else position - 1 - line_end + len(text)


def _without_indentation(line: str, indentation: int) -> str:
    blanks = len(line) - len(line.lstrip(" \t\r"))
    return line[min(blanks, indentation) :]
