"""What is said about a mistake in an Hjson text, and where reading goes on after it.

The half of the Hjson reader that has time: `Mistakes` holds the state that both halves share, words each problem, and
returns the offset at which the reader resumes. Three rules keep it calm and quick:

    one syntax problem a line     what follows a mistake on its line is usually its echo
    a limit on mistakes           then reading stops, what is open is closed, and what was read is kept
    always forward                every way out moves the offset or closes a container
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ds_accum.config.brackets import misindented_pair
from ds_accum.config.document import Path, Problem, ProblemKind, Span
from ds_accum.config.wording import quoted, shortened, token_end

if TYPE_CHECKING:
    from ds_accum.config.document import Limits, Node

# Blanks and comments: hjson's getNext. A comment that is not closed is left standing.
_SKIPPED = re.compile(r"[ \t\n\r]*(?:(?:(?:#|//)[^\n\r]*|/\*.*?\*/)[ \t\n\r]*)*", re.DOTALL)
_REST_OF_MISTAKE = re.compile(r"[^\n\r,}\]]*")
_PLACEHOLDER = re.compile(r"\{\{[^\n\r]*?\}\}|\{%[^\n\r]*?%\}")
_LINE_END = re.compile(r"\r\n|\r|\n")

_USUAL_CAUSES = (
    (re.compile(r"<{7}|={7}|>{7}"), "this looks like an unresolved merge conflict"),
    (re.compile(r"\{\{|\{%|\$\{|%\("), "this looks like a template placeholder: render the template first"),
    (re.compile(r"- |---"), "this looks like YAML, but DeepSpeed reads every config file as Hjson"),
    (re.compile(r"```"), "this looks like the end of a code block: keep only what is in it"),
    (re.compile("[\u201c\u201d\u2018\u2019]"), "use straight quotes"),
)
_PYTHON_WORD = re.compile(r"(?:True|False|None)\b")
_CLOSER = {"{": "}", "[": "]"}


def end_of(pattern: re.Pattern[str], text: str, offset: int) -> int:
    """Where a pattern that matches everywhere, if only nothing, stops to match."""
    match = pattern.match(text, offset)
    assert match is not None, "the pattern matches everywhere"
    return match.end()


class StopReading(Exception):
    """Nothing more can be read: the text ended inside something, or there were too many mistakes."""


class Frame(NamedTuple):
    """An object or a list that is being read. `start` is its bracket; `key` is None in a list, at the root, and where
    the text has a value without key, which is read to keep brackets in pairs and then dropped.
    """

    value: Any
    children: Any
    start: int
    key: str | None
    key_start: int
    key_end: int


class Mistakes:
    """The state of a reading, and everything that happens to it when the text is wrong."""

    def __init__(self, text: str, limits: Limits, *, is_json: bool = False) -> None:
        self.text = text
        self.limits = limits
        # The text ought to be JSON, where it is wrong anyway that a value has no quotes.
        self.is_json = is_json
        self.stack: list[Frame] = []
        self.problems: list[Problem] = []
        self.value: Any = {}
        self.root: Node | None = None
        # Blanks, comments and one comma are known to be skipped at this offset.
        self.settled = 0
        # A root object may come without braces; then it ends where the text does.
        self.braceless = False
        # The root was opened again for text behind its closing brace; its end needs no second complaint.
        self.reopened = False
        # The first value without quotes that took a closing bracket along.
        self.swallowed: tuple[int, int] | None = None
        # How hjson fails first: True with an exception other than its own, None if it does not fail.
        self.crashes: bool | None = None
        self._noted: dict[ProblemKind, int] = {}
        self._mistakes = 0
        self._last_mistake: int | None = None

    # Reporting

    def mistake(
        self,
        message: str,
        start: int,
        end: int,
        *,
        remedy: str | None = None,
        path: Path | None = None,
        related: tuple[int, int] | None = None,
        kind: ProblemKind = ProblemKind.SYNTAX,
        crash: bool = False,
    ) -> None:
        """Report that hjson refuses the text here. `crash`: with an exception that is not its own HjsonDecodeError."""
        if self.crashes is None:
            self.crashes = crash
        if not self._on_line_of_last_mistake(start):
            problem = Problem(
                kind=kind,
                message=message,
                span=Span(start, end),
                help=self._usual_cause(start) or remedy,
                path=self.path() if path is None else path,
                related=() if related is None else (Span(*related),),
            )
            self.problems.append(problem)
        self._last_mistake = start
        self._mistakes += 1
        if self._mistakes >= self.limits.problems:
            raise StopReading

    def note(self, kind: ProblemKind, message: str, span: Span, **details: Any) -> None:
        """Report what is no question of syntax: it neither hides nor stops anything."""
        self.problems.append(Problem(kind=kind, message=message, span=span, **details))

    def _is_worth_a_note(self, kind: ProblemKind) -> bool:
        """Whether one more of this kind is to be reported; counts it."""
        self._noted[kind] = self._noted.get(kind, 0) + 1
        return self._noted[kind] <= self.limits.problems

    def duplicate(self, key: str, node: Node, first: Node) -> None:
        """The object that is being read has this key already."""
        if not self._is_worth_a_note(ProblemKind.DUPLICATE_KEY):
            return
        path = self.path()
        where = f" in {quoted('.'.join(map(str, path)))}" if path else ""
        self.note(
            ProblemKind.DUPLICATE_KEY,
            f"the key {quoted(key)} appears twice{where}, first at line {self.line(first[0])}",
            Span(node[0], node[1]),
            help="remove one of the two",
            path=(*path, key),
            related=(Span(first[0], first[1]),),
        )

    def number_out_of_range(self, start: int, end: int, why: str) -> None:
        """Python raises where hjson converts this number."""
        if self.crashes is None:
            self.crashes = True
        if not self._is_worth_a_note(ProblemKind.NUMBER):
            return
        message = f"{shortened(self.text[start:end])} can't be read as a number: {why}"
        self.note(ProblemKind.NUMBER, message, Span(start, end), path=self.path())

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
        if _LINE_END.search(text, key_end, start) or text[start : start + 1] in ("", ",", "}", "]"):
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

    def open(self, bracket: str, start: int, key: str | None, key_start: int, key_end: int) -> None:
        """Begin an object or a list."""
        if len(self.stack) >= self.limits.depth:
            if self.crashes is None:
                self.crashes = True
            message = f"more than {self.limits.depth} objects and lists inside each other"
            self.note(ProblemKind.TOO_DEEP, message, Span(start, start + 1), help="real configs have some six levels")
            raise StopReading
        value: tuple[Any, Any] = ({}, {}) if bracket == "{" else ([], [])
        self.stack.append(Frame(*value, start, key, key_start, key_end))

    def close(self, end: int) -> None:
        """End the innermost object or list, and keep it under its key in the one around it."""
        value, children, start, key, key_start, key_end = self.stack.pop()
        node = (key_start, key_end, start, end, children)
        if self.stack:
            self.keep(key, value, node)
        else:
            self.value, self.root = value, node

    def keep(self, key: str | None, value: Any, node: Node) -> None:
        """Put a value that has been read into the object or list around it."""
        frame = self.stack[-1]
        if type(frame.value) is list:
            frame.value.append(value)
            frame.children.append(node)
        elif key is not None:
            if key in frame.children:
                self.duplicate(key, node, frame.children[key])
            frame.value[key] = value
            frame.children[key] = node

    def close_all(self) -> None:
        """End everything that is open at the end of the text."""
        end = len(self.text.rstrip())
        while self.stack:
            self.close(max(end, self.stack[-1].start + 1))

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

    def skip(self, offset: int) -> int:
        """Past blanks and comments."""
        end = end_of(_SKIPPED, self.text, offset)
        if self.text.startswith("/*", end):
            # hjson looks for the end of the comment beyond the end of the text, and gets an IndexError.
            message = f"the comment of line {self.line(end)} is never closed: expected '*/'"
            self.mistake(message, end, end + 2, crash=True)
            raise StopReading
        return end

    def resume(self, offset: int) -> int:
        """Go on at the next token from `offset`."""
        self.settled = self.skip(offset)
        return self.settled

    def separate(self, offset: int) -> int:
        """Go on at the next token after a value that ended at `offset`: past one comma, if there is one."""
        offset = self.skip(offset)
        return self.resume(offset + 1 if self.text.startswith(",", offset) else offset)

    def path(self) -> Path:
        """The path of the innermost object or list."""
        steps = (
            len(outer.value) if type(outer.value) is list else frame.key
            for outer, frame in zip(self.stack, self.stack[1:], strict=False)
        )
        return tuple(step for step in steps if step is not None)

    def line(self, offset: int) -> int:
        """The line of `offset`, counted from 1."""
        return sum(1 for _ in _LINE_END.finditer(self.text, 0, offset)) + 1

    def _on_line_of_last_mistake(self, start: int) -> bool:
        last = self._last_mistake
        return last is not None and _LINE_END.search(self.text, min(last, start), max(last, start)) is None

    def _expected(self, what: str) -> str:
        """`a key or '}' after the value of "stage"`: what may come next in the innermost object or list."""
        value = self.stack[-1].value
        if type(value) is list:
            return f"{what} or ']'" + (f" after item {len(value) - 1}" if value else "")
        closing = "the end of the text" if self.braceless and len(self.stack) == 1 else "'}'"
        last = next(reversed(value), None)
        return f"{what} or {closing}" + ("" if last is None else f" after the value of {quoted(last)}")

    def _usual_cause(self, start: int) -> str | None:
        # The first brace of a placeholder was read as an object; what stands out is its second character.
        starts = (start, start - 1) if start and self.text[start - 1] == "{" else (start,)
        matches = (cause for at in starts for pattern, cause in _USUAL_CAUSES if pattern.match(self.text, at))
        return next(matches, None)
