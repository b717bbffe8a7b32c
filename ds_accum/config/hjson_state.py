"""The state of a reading of an Hjson text: what is open, how far blanks are skipped, and the problems so far.

What the parts of the Hjson reader share. Two rules keep it calm and quick about what is wrong:

    one syntax problem a line     what follows a mistake on its line is usually its echo
    a limit on mistakes           then reading stops, what is open is closed, and what was read is kept
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ds_accum.config.document import Path, Problem, ProblemKind, Span
from ds_accum.config.wording import quoted, shortened

if TYPE_CHECKING:
    from ds_accum.config.document import Limits, Node

__all__ = ["LINE_END", "Frame", "HjsonState", "StopReading", "end_of"]

LINE_END = re.compile(r"\r\n|\r|\n")
# Blanks and comments: hjson's getNext. A comment that is not closed is left standing.
_SKIPPED = re.compile(r"[ \t\n\r]*(?:(?:(?:#|//)[^\n\r]*|/\*.*?\*/)[ \t\n\r]*)*", re.DOTALL)
_USUAL_CAUSES = (
    (re.compile(r"<{7}|={7}|>{7}"), "this looks like an unresolved merge conflict"),
    (re.compile(r"\{\{|\{%|\$\{|%\("), "this looks like a template placeholder: render the template first"),
    (re.compile(r"- |---"), "this looks like YAML, but DeepSpeed reads every config file as Hjson"),
    (re.compile(r"```"), "this looks like the end of a code block: keep only what is in it"),
    (re.compile("[\u201c\u201d\u2018\u2019]"), "use straight quotes"),
)


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


class HjsonState:
    """What has been read of a text, what is open, and what was wrong with it."""

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

    # Problems

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

    def _is_worth_a_note(self, kind: ProblemKind) -> bool:
        """Whether one more of this kind is to be reported; counts it."""
        self._noted[kind] = self._noted.get(kind, 0) + 1
        return self._noted[kind] <= self.limits.problems

    def _on_line_of_last_mistake(self, start: int) -> bool:
        last = self._last_mistake
        return last is not None and LINE_END.search(self.text, min(last, start), max(last, start)) is None

    def _usual_cause(self, start: int) -> str | None:
        # The first brace of a placeholder was read as an object; what stands out is its second character.
        starts = (start, start - 1) if start and self.text[start - 1] == "{" else (start,)
        matches = (cause for at in starts for pattern, cause in _USUAL_CAUSES if pattern.match(self.text, at))
        return next(matches, None)

    # Objects and lists

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

    # Places

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
        return sum(1 for _ in LINE_END.finditer(self.text, 0, offset)) + 1
