"""What is said about a mistake in an Hjson text, and where reading goes on after it.

The half of the Hjson reader that has time: `Mistakes` words what is wrong between the values, and returns the offset at
which the reader resumes. It always goes forward: every way out moves the offset or closes a container.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from ds_accum.config.brackets import misindented_pair
from ds_accum.config.hjson_state import LINE_END, Frame, HjsonState, StopReading, end_of
from ds_accum.config.wording import quoted, shortened, token_end

if TYPE_CHECKING:
    from ds_accum.config.document import Node

__all__ = ["Mistakes"]

_REST_OF_MISTAKE = re.compile(r"[^\n\r,}\]]*")
_PLACEHOLDER = re.compile(r"\{\{[^\n\r]*?\}\}|\{%[^\n\r]*?%\}")
_PYTHON_WORD = re.compile(r"(?:True|False|None)\b")
_CLOSER = {"{": "}", "[": "]"}


class Mistakes(HjsonState):
    """Everything that happens to a reading when the text is wrong outside of its scalars."""

    # What can be wrong in an object or a list; each returns where to go on

    def bad_key(self, start: int) -> int:
        """No `key:` where one must be."""
        character = self.text[start]
        if character == "]" and self._open_around(list):
            return self._close_up_to(list, start)
        if character in "{[":
            return self._value_without_key(start)
        remedy = None
        if character == ",":
            remedy = "remove one comma"
        elif character in "}]":
            remedy = "nothing is open here that it could close: remove it"
        end = token_end(self.text, start)
        found = shortened(self.text[start:end])
        if "=" in found:
            remedy = "write ':' instead of '='"
        self.mistake(f"expected {self._expected('a key')}, found {found}", start, end, remedy=remedy)
        if character in ",}]":
            return self.resume(start + 1)
        return self.separate(end_of(_REST_OF_MISTAKE, self.text, end))

    def missing_colon(self, key_start: int, key_end: int, start: int) -> int:
        """A key without colon. Returns where its value begins, -1 if it seems to have none."""
        text = self.text
        end = token_end(text, start)
        remedy = None
        if text.startswith("=", start):
            remedy = "write ':' instead of '='"
            end = start + 2 if text.startswith("=>", start) else start + 1
        found = shortened(text[start:end]) if end > start else "the end of the text"
        key = shortened(text[key_start:key_end])
        self.mistake(f"expected ':' after the key {key}, found {found}", start, end, remedy=remedy)
        if LINE_END.search(text, key_end, start) or text[start : start + 1] in ("", ",", "}", "]"):
            return -1
        return self.skip(end if remedy else start)

    def bad_value(self, start: int, key: str | None) -> int:
        """A punctuator or the end of the text where a value must be; `key` is None in a list."""
        character = self.text[start : start + 1]
        if key is None and not character:
            self.never_closed()
        if key is None and character == "}" and self._open_around(dict):
            return self._close_up_to(dict, start)
        if key is None and character == ":" and (member := self._member_taken_for_an_item()) is not None:
            return self._close_before(member)
        expected = self._expected("a value") if key is None else f"a value for the key {quoted(key)}"
        found = f"'{character}'" if character else "the end of the text"
        remedy = None
        if key is None and character == ":":
            remedy = f"a list has no keys; does the '[' of line {self.line(self.stack[-1].start)} lack its ']'?"
        self.mistake(f"expected {expected}, found {found}", start, start + len(character), remedy=remedy)
        if key is None or character == ":":
            return self.resume(start + 1)
        return self.separate(start) if character == "," else self.resume(start)

    def _member_taken_for_an_item(self) -> Node | None:
        """The last item of a list, if it is a string and can be a key of the object around the list."""
        if len(self.stack) < 2 or type(self.stack[-2].value) is not dict:
            return None
        items, nodes = self.stack[-1].value, self.stack[-1].children
        return nodes[-1] if items and type(items[-1]) is str else None

    def _close_before(self, member: Node) -> int:
        """End the list, which lacks its bracket, before what turned out to be a key: nothing but that is wrong."""
        items, nodes, opened, *_ = self.stack[-1]
        key = items.pop()
        nodes.pop()
        message = f"expected ']' to close the '[' of line {self.line(opened)}, found the key {quoted(key)}"
        self.mistake(message, member[2], member[3], related=(opened, opened + 1))
        self.close(nodes[-1][3] if nodes else opened + 1)
        return self.resume(member[2])

    def _value_without_key(self, start: int) -> int:
        placeholder = self._placeholder(start)
        if placeholder is None:
            bracket = self.text[start]
            self.mistake(f"expected {self._expected('a key')}, found '{bracket}'", start, start + 1)
            self.open(bracket, start, None, -1, -1)
            return self.resume(start + 1)
        key, expected = None, "a config"
        if placeholder.start() < start:
            # The first of the two braces was taken for an object, which it is not.
            key = self.stack.pop().key
        if key is not None:
            expected = f"a value for the key {quoted(key)}"
        elif self.stack:
            expected = self._expected("a value" if type(self.stack[-1].value) is list else "a key")
        self.mistake(f"expected {expected}, found {shortened(placeholder[0])}", *placeholder.span())
        if not self.stack:
            raise StopReading
        return self.separate(placeholder.end())

    def _placeholder(self, start: int) -> re.Match[str] | None:
        """`{{ name }}` whose second brace, or first, is at `start`."""
        frame = self.stack[-1]
        if not frame.children and frame.start == start - 1 and self.text[start - 1] == "{":
            return _PLACEHOLDER.match(self.text, start - 1)
        return _PLACEHOLDER.match(self.text, start)

    # Brackets

    def never_closed(self) -> NoReturn:
        """The text ended inside an object or a list."""
        if self.reopened:
            raise StopReading
        text = self.text
        pair = misindented_pair(text, [frame.children for frame in self.stack])
        start = self.stack[-1].start if pair is None else pair[0]
        expected = f"expected '{_CLOSER[text[start]]}'"
        message = f"the '{text[start]}' of line {self.line(start)} is never closed"
        if self.swallowed is not None:
            if self.is_json:
                raise StopReading
            value = text[slice(*self.swallowed)]
            remedy = "put it in quotes, or the next member on a line of its own"
            if _PYTHON_WORD.match(value):
                remedy = "this is Python; Hjson writes true, false and null"
            elif value[0].isdigit():
                remedy = "a comma is missing, or this is no number"
            message += f": without quotes, the value {shortened(value)} takes the rest of its line, brackets included"
            self.mistake(message, *self.swallowed, remedy=remedy, related=(start, start + 1))
        elif pair is None:
            self.mistake(f"{message}: {expected} before the end of the text", start, start + 1)
        else:
            closer = pair[1]
            self.mistake(
                f"{message}: {expected} before the '{text[closer]}' of line {self.line(closer)}",
                start,
                start + 1,
                remedy=f"going by its indentation, that '{text[closer]}' is meant to close something further out",
                related=(closer, closer + 1),
            )
        raise StopReading

    def text_after_root(self, start: int) -> bool:
        """Something follows the root. Returns whether it may be further members; then the root is open again."""
        root = self.root
        if root is None or self.reopened:
            return False
        text, closer = self.text, root[3] - 1
        end = token_end(text, start)
        opening, closing = text[root[2]], text[closer]
        self.mistake(
            f"expected the end of the text after the '{closing}' of line {self.line(closer)}, "
            f"found {shortened(text[start:end])}",
            start,
            end,
            remedy=f"that '{closing}' closes the '{opening}' of line {self.line(root[2])}: remove it, or the rest",
            path=(),
            related=(closer, closer + 1),
        )
        while text[start : start + 1] in ("}", "]", ","):
            start = self.skip(start + 1)
        if text[closer] != "}" or start == len(text):
            return False
        self.reopened = True
        self.settled = start
        self.stack.append(Frame(self.value, root[4], root[2], None, -1, -1))
        return True

    def _close_up_to(self, kind: type, start: int) -> int:
        """A bracket that closes something further out: what is open inside of that lacks its own."""
        opened = self.stack[-1].start
        opening = self.text[opened]
        self.mistake(
            f"expected '{_CLOSER[opening]}' to close the '{opening}' of line {self.line(opened)}, "
            f"found '{self.text[start]}'",
            start,
            start + 1,
            related=(opened, opened + 1),
        )
        while type(self.stack[-1].value) is not kind:
            self.close(start)
        return self.resume(start)

    def _open_around(self, kind: type) -> bool:
        """Whether a list, or an object with a brace of its own, is open around the innermost object or list."""
        return any(type(frame.value) is kind for frame in self.stack[self.braceless : -1])

    # The ground: blanks, places, words

    def _expected(self, what: str) -> str:
        """`a key or '}' after the value of "stage"`: what may come next in the innermost object or list."""
        value = self.stack[-1].value
        if type(value) is list:
            return f"{what} or ']'" + (f" after item {len(value) - 1}" if value else "")
        closing = "the end of the text" if self.braceless and len(self.stack) == 1 else "'}'"
        last = next(reversed(value), None)
        return f"{what} or {closing}" + ("" if last is None else f" after the value of {quoted(last)}")
