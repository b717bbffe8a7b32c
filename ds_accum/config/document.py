"""A config text as its reader sees it, and where each key and value is written: text -> `Document`.

    document = read_bytes(path.read_bytes(), filename=str(path))
    document.value                                        # {"zero_optimization": {"stage": 2}}
    document.value_span(("zero_optimization", "stage"))   # Span(start=36, end=37)
    document.position(36)                                 # Position(line=2, column=35, offset=36)

Three syntaxes, each read exactly as the library reads it that the launch would use:

    HJSON   hjson.load on a file opened as text: what DeepSpeed does with every config file, whatever its extension
    JSON    json.loads: what Hugging Face and Accelerate do with a DeepSpeed config
    YAML    yaml.safe_load: Accelerate's and GPT-NeoX's own files

A text that its library refuses still gives a document: `problems` says what is wrong and where, `value` and the spans
hold everything that could be read in spite of it. Reading never raises, whatever the text.

Offsets count code points of `Document.text`, which is the text as given: byte order mark and line ends are untouched.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "DEFAULT_LIMITS",
    "Document",
    "Limits",
    "Path",
    "Position",
    "Problem",
    "ProblemKind",
    "Reading",
    "Span",
    "Syntax",
    "read_bytes",
    "read_text",
]

Path: TypeAlias = tuple[str | int, ...]
"""Keys and list indices from the root to a value; () is the root."""

Node: TypeAlias = "tuple[int, int, int, int, dict[Any, Node] | list[Node] | None]"
"""Where one value is written: key start, key end (-1 twice without a key), value start, value end, children.

A bare tuple, because a reader makes one for every value of every file.
"""

BYTE_ORDER_MARK = "\ufeff"

_LINE_END = re.compile(r"\r\n|\r|\n")


class Syntax(str, Enum):
    """How a text is read."""

    HJSON = "hjson"
    JSON = "json"
    YAML = "yaml"


class ProblemKind(str, Enum):
    """Why a text is not read as its author meant it."""

    SYNTAX = "syntax"
    """The library refuses the text: a token is missing, misplaced or malformed."""
    DUPLICATE_KEY = "duplicate-key"
    """A key appears twice in one object. DeepSpeed refuses it; `value` has the last, as json and YAML do."""
    NUMBER = "number"
    """A number or a date that Python can't convert: more digits than `Limits.integer_digits`, too large for a float."""
    ENCODING = "encoding"
    """The bytes are not UTF-8."""
    TAG = "tag"
    """A YAML tag that safe loading does not know, such as `!!python/object`."""
    EMPTY = "empty"
    """There is no value at all, and the library does not read that as an empty object (hjson reads "" as one)."""
    NOT_AN_OBJECT = "not-an-object"
    """The text is valid, but its root is a list, a string, a number or null, so it can't be a config."""
    TOO_LARGE = "too-large"
    """Longer than `Limits.size`, or more values than `Limits.nodes`."""
    TOO_DEEP = "too-deep"
    """Nested deeper than `Limits.depth`."""
    TOO_MANY_ALIASES = "too-many-aliases"
    """YAML aliases that are too many, expand to too much, or contain themselves."""


class Span(NamedTuple):
    """Part of a document: offsets of code points in `Document.text`, half open."""

    start: int
    end: int


class Position(NamedTuple):
    """A place as an editor shows it: line and column count from 1, the column in code points.

    A line ends at \\n, \\r\\n or \\r. A byte order mark at the start of the text takes no column.
    """

    line: int
    column: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong with the text itself.

    `message` is one sentence of fact in lower case, `help` the usual cause or the remedy. `path` is the nearest value
    around it, None where that is unknown; `related` are further places that matter, such as the first of two keys.
    """

    kind: ProblemKind
    message: str
    span: Span
    help: str | None = None
    path: Path | None = None
    related: tuple[Span, ...] = ()


class Limits(NamedTuple):
    """What a config may cost to read. Real ones have some 1,500 characters and six levels."""

    size: int = 1_000_000
    """Characters, or bytes where bytes are read."""
    depth: int = 100
    """Objects and lists inside each other. hjson itself overflows Python's stack at about 450."""
    integer_digits: int = 4300
    """Digits of an integer: Python's own default limit (`sys.int_info.default_max_str_digits`), where int() raises."""
    aliases: int = 1_000
    """YAML aliases in a file."""
    nodes: int = 20_000
    """Values of a YAML file, each alias counted as often as it is used."""
    problems: int = 20
    """Problems of one kind that are reported; after as many syntax errors reading stops."""


DEFAULT_LIMITS = Limits()


class Reading(NamedTuple):
    """What a reader hands over: the value, where it is written (None without a value), and what was wrong.

    Its offsets are those of the text that the reader was given.
    """

    value: Any
    root: Node | None
    problems: list[Problem]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A text, the value it holds, and the place of every key and value in it. Made by `read_text` and `read_bytes`.

    `value` is what the syntax's library gives, in plain dicts and lists; for a broken text what could be read, {} where
    nothing could. `problems` is in the order of the text.
    """

    text: str
    filename: str
    syntax: Syntax
    value: Any
    problems: tuple[Problem, ...]
    _root: Node | None = field(repr=False)
    _joined_line_ends: list[int] = field(repr=False)
    """Where the reader saw one \\n and the text has \\r\\n: offsets in what the reader saw, ascending."""
    _line_starts: list[int] = field(default_factory=list, repr=False, compare=False)
    """Offset of each line's first character; filled when a position is first asked for."""

    def value_span(self, path: Path) -> Span | None:
        """Where the value at `path` is written, quotes and brackets included; None if there is no such value.

        A YAML alias is a value of its own; what lies below it is found where the anchor is written.
        """
        node = self._node(path)
        return None if node is None else _moved_span(node[2], node[3], self._joined_line_ends)

    def key_span(self, path: Path) -> Span | None:
        """Where the key of the value at `path` is written, quotes included; None for list items and the root."""
        node = self._node(path)
        return None if node is None or node[0] < 0 else _moved_span(node[0], node[1], self._joined_line_ends)

    def nearest_span(self, path: Path, *, key: bool = False) -> Span:
        """Where `path` is written or, where it is not, the closest of its parents that is.

        `key` asks for the key instead of the value, where there is one: the smaller thing to point at for a missing or
        an unknown key. The root is its first character, and so is a text without any value.
        """
        for length in range(len(path), 0, -1):
            span = (self.key_span(path[:length]) if key else None) or self.value_span(path[:length])
            if span is not None:
                return span
        root = self.value_span(())
        start = 0 if root is None else root.start
        return Span(start, min(start + 1, len(self.text)))

    def position(self, offset: int) -> Position:
        """Line and column of the character at `offset`; an offset outside the text is moved to its nearer end."""
        offset = min(max(offset, 0), len(self.text))
        starts = self._starts()
        line = bisect_right(starts, offset)
        # With a byte order mark the first line starts at 1, and the mark itself is shown as its column 1.
        return Position(max(line, 1), offset - starts[line - 1] + 1 if line else 1, offset)

    def line(self, number: int) -> str:
        """The text of a line, counted from 1, without its line end; raises IndexError if there is no such line."""
        starts = self._starts()
        if not 1 <= number <= len(starts):
            raise IndexError(f"line {number} of {self.filename}, which has {len(starts)}")
        end = starts[number] if number < len(starts) else len(self.text)
        return self.text[starts[number - 1] : end].rstrip("\r\n")

    def _starts(self) -> list[int]:
        if not self._line_starts:
            self._line_starts.append(1 if self.text.startswith(BYTE_ORDER_MARK) else 0)
            self._line_starts.extend(match.end() for match in _LINE_END.finditer(self.text))
        return self._line_starts

    def _node(self, path: Path) -> Node | None:
        node = self._root
        for step in path:
            children = None if node is None else node[4]
            if isinstance(children, dict):
                node = children.get(step)
            elif isinstance(children, list) and isinstance(step, int) and 0 <= step < len(children):
                node = children[step]
            else:
                return None
        return node


def read_text(
    text: str,
    *,
    filename: str = "<text>",
    syntax: Syntax = Syntax.HJSON,
    limits: Limits = DEFAULT_LIMITS,
    universal_newlines: bool = True,
) -> Document:
    """Read a config text. Never raises: what is wrong with the text is in the document's `problems`.

    `universal_newlines`: \\r\\n and \\r count as \\n, as in a file that Python opens as text. Only a multi-line string
    of Hjson can tell; pass False for a text that DeepSpeed gets as base64, where it is read as it stands.
    """
    return _read(text, filename, syntax, limits, universal_newlines, [])


def read_bytes(
    data: bytes,
    *,
    filename: str,
    syntax: Syntax | None = None,
    limits: Limits = DEFAULT_LIMITS,
    universal_newlines: bool = True,
) -> Document:
    """Read the bytes of a config file, which must be UTF-8; a byte order mark is allowed where the syntax allows it.

    Without `syntax` the extension decides: .yaml and .yml are YAML, everything else is Hjson, as DeepSpeed reads it.
    Bytes that are not UTF-8 are a problem, and the rest is read with U+FFFD in their place. Never raises.
    """
    if syntax is None:
        syntax = Syntax.YAML if filename.lower().endswith((".yaml", ".yml")) else Syntax.HJSON
    if len(data) > limits.size:
        # What is shown of such a file is its beginning; nothing of it is read.
        return _too_large(data[:1000].decode("utf-8", "replace"), filename, syntax, f"{len(data):,} bytes", limits)
    try:
        return _read(data.decode("utf-8"), filename, syntax, limits, universal_newlines, [])
    except UnicodeDecodeError as error:
        text, problem = _decode_anyway(data, error)
        return _read(text, filename, syntax, limits, universal_newlines, [problem])


def _decode_anyway(data: bytes, error: UnicodeDecodeError) -> tuple[str, Problem]:
    """The most readable text for bytes that are not UTF-8, and the problem that they are not."""
    byte = f"byte 0x{data[error.start]:02x} at byte offset {error.start}"
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = data.decode("utf-16", "replace")
        help_ = "the byte order mark says UTF-16, as some Windows editors and shells write; save the file as UTF-8"
        start = 0
    else:
        text = data.decode("utf-8", "replace")
        help_ = "save the file as UTF-8"
        start = len(data[: error.start].decode("utf-8"))
    message = f"not UTF-8 text: {byte} can't be decoded ({error.reason})"
    span = Span(start, min(start + 1, len(text)))
    return text, Problem(kind=ProblemKind.ENCODING, message=message, span=span, help=help_)


def _read(
    text: str, filename: str, syntax: Syntax, limits: Limits, universal_newlines: bool, problems: list[Problem]
) -> Document:
    if len(text) > limits.size:
        return _too_large(text, filename, syntax, f"{len(text):,} characters", limits)
    seen, joined = text, []
    if universal_newlines and "\r" in text:
        # The n-th \r\n starts n characters earlier in what the reader sees: one character was joined at each before.
        joined = [match.start() - n for n, match in enumerate(re.finditer("\r\n", text))]
        seen = text.replace("\r\n", "\n").replace("\r", "\n")
    reading = _reader(syntax)(seen, limits)
    problems += (_moved(problem, joined) for problem in reading.problems)
    if not isinstance(reading.value, dict) and all(p.kind is ProblemKind.DUPLICATE_KEY for p in problems):
        problems.append(_not_an_object(reading, joined))
    return Document(
        text=text,
        filename=filename,
        syntax=syntax,
        value=reading.value,
        problems=tuple(sorted(problems, key=lambda problem: problem.span.start)),
        _root=reading.root,
        _joined_line_ends=joined,
    )


def _too_large(text: str, filename: str, syntax: Syntax, size: str, limits: Limits) -> Document:
    problem = Problem(
        kind=ProblemKind.TOO_LARGE,
        message=f"{size} are more than the {limits.size:,} that a config may have",
        span=Span(0, min(1, len(text))),
        help="real configs have some 1,500 characters: is this the right file?",
    )
    return Document(
        text=text, filename=filename, syntax=syntax, value={}, problems=(problem,), _root=None, _joined_line_ends=[]
    )


def _not_an_object(reading: Reading, joined: list[int]) -> Problem:
    value = reading.value
    if value is None:
        found = "null"
    elif isinstance(value, bool):
        found = "true" if value else "false"
    else:
        found = {list: "a list", str: "a string", int: "a number", float: "a number"}.get(type(value), "something else")
    span = Span(0, 0) if reading.root is None else _moved_span(reading.root[2], reading.root[3], joined)
    return Problem(
        kind=ProblemKind.NOT_AN_OBJECT,
        message=f"a config must be an object of keys and values, found {found}",
        # A list may span the whole text; its first character is enough to see where it begins.
        span=span if isinstance(value, (str, bool, int, float, type(None))) else Span(span.start, span.start + 1),
        path=(),
    )


def _moved(problem: Problem, joined: list[int]) -> Problem:
    if not joined:
        return problem
    return replace(
        problem,
        span=_moved_span(problem.span.start, problem.span.end, joined),
        related=tuple(_moved_span(span.start, span.end, joined) for span in problem.related),
    )


def _moved_span(start: int, end: int, joined: list[int]) -> Span:
    """From offsets in what the reader saw to offsets in the text: one more for each line end joined before."""
    if not joined:
        return Span(start, end)
    return Span(start + bisect_left(joined, start), end + bisect_left(joined, end))


def _reader(syntax: Syntax) -> Callable[[str, Limits], Reading]:
    """The reader of a syntax, imported when it is needed: PyYAML costs more than all of Hjson's reading."""
    if syntax is Syntax.HJSON:
        from ds_accum.config.hjson_reader import read_hjson

        return read_hjson
    if syntax is Syntax.JSON:
        from ds_accum.config.json_reader import read_json

        return read_json
    from ds_accum.config.yaml_reader import read_yaml

    return read_yaml
