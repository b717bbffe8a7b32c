"""Hjson text -> values and their places, exactly as the `hjson` package reads it for DeepSpeed, and on past a mistake.

hjson is a loop over characters that stops at the first mistake and keeps no places. Here a config that is ordinary
JSON costs one regular expression a member; whatever else Hjson allows goes through functions that follow hjson's own
(`decoder.py` of hjson 3.1.0, named at each), surprises included:

    8.0, 1e1          integers, as every number below 1e10 without fraction
    1e400             an OverflowError, more than 4300 digits a ValueError: a problem here
    True, 1_000,      strings: a value without quotes that is no JSON word takes the rest of its line, commas included
    {a: 1 b: 2}       the same: one member, whose value is the string `1 b: 2}`
    '''...'''         several lines, less the indentation of the first quote; an IndexError in a file of one line
    "\\u+123"          int("+123", 16) is happy, so hjson is
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ds_accum.config.document import BYTE_ORDER_MARK, ProblemKind, Reading
from ds_accum.config.hjson_mistakes import Mistakes
from ds_accum.config.hjson_scalars import END_OF_WORD, WORDS, Scalars
from ds_accum.config.hjson_state import StopReading, end_of

if TYPE_CHECKING:
    from ds_accum.config.document import Limits

__all__ = ["read_hjson"]

# The ordinary cases.
_BLANK = r"[ \t\n\r]*"
_STRING = r'"([^"\\\x00-\x1f]*)"'
_INTEGER = r"-?(?:0|[1-9][0-9]*)"
_SCALAR = (
    rf"{_STRING}"
    rf"|(true|false|null){END_OF_WORD}"
    rf"|({_INTEGER}){END_OF_WORD}"
    rf"|({_INTEGER}(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?){END_OF_WORD}"
)
_VALUE = rf"(?:(?:{_SCALAR}){_BLANK}(?:,{_BLANK})?|([{{\[]){_BLANK})"
_match_item = re.compile(_VALUE).match
_match_member = re.compile(rf"{_STRING}{_BLANK}:{_BLANK}{_VALUE}").match
# The groups of _match_item; those of _match_member are one higher, as the key is the first.
_IS_STRING, _IS_WORD, _IS_INTEGER, _IS_FLOAT, _IS_BRACKET = 1, 2, 3, 4, 5

# The rest of Hjson.
_NAME = re.compile(r"[^:{}\[\], \t\n\r]*")
_BLANKS = re.compile(_BLANK)
_PUNCTUATORS = ("", "{", "}", "[", "]", ",", ":")


def read_hjson(text: str, limits: Limits, *, is_json: bool = False) -> Reading:
    """Values as hjson.loads gives them, in dicts; for a text that it refuses, what can be read, and the problems.

    With `is_json`, a value that takes brackets along because it has no quotes is left to the caller to complain about.
    """
    reader = _Reader(text, limits, is_json=is_json)
    try:
        reader.read()
    except StopReading:
        reader.close_all()
    if reader.braceless and reader.crashes is False:
        # hjson tries an object without braces first, and where that fails in its own way, a single value.
        alone = _read_single_value(text, limits)
        if alone is not None:
            return alone
    return Reading(value=reader.value, root=reader.root, problems=reader.problems)


def _read_single_value(text: str, limits: Limits) -> Reading | None:
    """The reading of a text that is one value and nothing else, None if it is not."""
    reader = _Reader(text, limits)
    try:
        start = reader.skip_byte_order_mark()
        if text[start] in _PUNCTUATORS:
            return None
        value, end, after = reader.scalar(start)
        refused = any(problem.kind is not ProblemKind.NUMBER for problem in reader.problems)
        if refused or reader.skip(after) != len(text):
            return None
    except StopReading:
        return None
    return Reading(value=value, root=(-1, -1, start, end, None), problems=reader.problems)


class _Reader(Mistakes, Scalars):
    """One reading. `position` below is always the offset of the next character to look at."""

    def read(self) -> None:
        """The whole text: hjson's `decode` and `raw_decode`."""
        text = self.text
        position = self.skip_byte_order_mark()
        if position == len(text):
            # hjson reads a text without any value as {}, but not behind a byte order mark.
            if text.startswith((BYTE_ORDER_MARK, "\xef\xbb\xbf")):
                message = "nothing but a byte order mark and blanks"
                self.mistake(message, 0, 1, kind=ProblemKind.EMPTY, remedy="write at least {}")
            return
        bracket = text[position]
        if bracket in "{[":
            self.open(bracket, position, None, -1, -1)
            position += 1
        else:
            self.braceless = True
            self.open("{", position, None, -1, -1)
        self.settled = position if self.braceless else -1
        while True:
            position = self.skip(self._read_containers(position))
            if position == len(text) or not self.text_after_root(position):
                return
            position = self.settled

    def skip_byte_order_mark(self) -> int:
        """The offset of the first token."""
        if self.text.startswith(BYTE_ORDER_MARK):
            return self.skip(1)
        # The same mark, if its bytes were decoded one by one.
        return self.skip(3 if self.text.startswith("\xef\xbb\xbf") else 0)

    def _read_containers(self, position: int) -> int:
        """hjson's JSONObject and JSONArray, without recursion: all up to the end of the root, which is returned."""
        text, stack = self.text, self.stack
        digits = self.limits.integer_digits
        item: Any
        while stack:
            value, children, *_ = stack[-1]
            is_object = type(value) is dict
            match_next = _match_member if is_object else _match_item
            while True:
                match = match_next(text, position)
                if match is None:
                    # A bracket may have been opened or closed there.
                    position = self._member(position) if is_object else self._item(position)
                    break
                group = match.lastindex or 0
                kind = group - is_object
                start, end = match.span(group)
                if kind == _IS_STRING:
                    item = match[group]
                    start -= 1
                    end += 1
                elif kind == _IS_INTEGER and end - start <= digits:
                    item = int(match[group])
                elif kind == _IS_WORD:
                    item = WORDS[match[group]]
                elif kind == _IS_BRACKET:
                    if is_object:
                        self.open(match[group], start, match[1], position, match.end(1) + 1)
                    else:
                        self.open(match[group], start, None, -1, -1)
                    position = match.end()
                    break
                else:
                    item = self.number(match[group], kind == _IS_FLOAT, start, end)
                if is_object:
                    key = match[1]
                    node = (position, match.end(1) + 1, start, end, None)
                    if key in children:
                        self.duplicate(key, node, children[key])
                    value[key] = item
                    children[key] = node
                else:
                    value.append(item)
                    children.append((-1, -1, start, end, None))
                position = match.end()
        return position

    # The same, one step at a time, for everything that is not ordinary

    def _member(self, position: int) -> int:
        """A member, or the end, of the innermost object."""
        text = self.text
        if position != self.settled:
            position = self._settle(position)
        character = text[position : position + 1]
        is_braceless = self.braceless and len(self.stack) == 1
        if character == "}" and not is_braceless:
            return self._close(position + 1)
        if not character:
            if is_braceless:
                self.close(max((node[3] for node in self.stack[0].children.values()), default=position))
                return position
            self.never_closed()
        if character in "\"'":
            key, key_end, is_closed = self.string(position)
            if not is_closed:
                return self.resume(key_end)
            colon = self.skip(key_end)
        else:
            # hjson's scanKeyName: blanks may only come last, and only where there are some goes other white space too.
            key_end = end_of(_NAME, text, position)
            colon = end_of(_BLANKS, text, key_end)
            key = text[position:key_end]
            if not key or text[colon : colon + 1] not in (":", "="):
                return self.bad_key(position)
            if colon > key_end:
                key = key.rstrip()
                key_end = position + len(key) if key else key_end
        if text.startswith(":", colon):
            start = self.skip(colon + 1)
        else:
            start = self.missing_colon(position, key_end, colon)
            if start < 0:
                return self.separate(colon)
        return self._value(start, key, position, key_end)

    def _item(self, position: int) -> int:
        """An item, or the end, of the innermost list."""
        if position != self.settled:
            position = self._settle(position)
        if self.text.startswith("]", position):
            return self._close(position + 1)
        return self._value(position, None, -1, -1)

    def _value(self, position: int, key: str | None, key_start: int, key_end: int) -> int:
        character = self.text[position : position + 1]
        if character and character in "{[":
            self.open(character, position, key, key_start, key_end)
            return self.resume(position + 1)
        if character in _PUNCTUATORS:
            return self.bad_value(position, key)
        value, end, after = self.scalar(position)
        self.keep(key, value, (key_start, key_end, position, end, None))
        return self.separate(after)

    def _settle(self, position: int) -> int:
        """Skip what the regular expressions leave: comments, and a comma behind them."""
        before = position - 1
        while self.text[before] in " \t\n\r":
            before -= 1
        return self.resume(position) if self.text[before] in ",{[" else self.separate(position)

    def _close(self, end: int) -> int:
        self.close(end)
        return self.separate(end) if self.stack else end
