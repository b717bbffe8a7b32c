"""A document knows where everything is, whatever the text: it never raises, and never takes long."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_accum.config.document import Document, Limits, Position, ProblemKind, Span, Syntax, read_bytes, read_text
from tests.config.texts import TOKENS, YAML_TOKENS, assert_in_bounds, base_texts, mutated

CONFIG = '{\n  "optimizer": {"params": {"betas": [0.9, 0.95]}}\n}\n'
BETAS = ("optimizer", "params", "betas")

LINE_ENDS = st.text(st.sampled_from("ab\t\r\n\u2028\x85\x0c\x0b😀\ud800"), max_size=30)


class TestPositions:
    @pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
    def test_every_kind_of_line_end_ends_a_line(self, line_end: str) -> None:
        text = line_end.join(("{", "\ta: 1", "  b: 2", "}"))
        document = read_text(text)
        for number, path in ((2, ("a",)), (3, ("b",))):
            span = document.key_span(path)
            assert span is not None
            column = {2: 2, 3: 3}[number]
            assert document.position(span.start) == Position(number, column, text.index(path[0]))
        assert [document.line(number) for number in (1, 2, 3, 4)] == ["{", "\ta: 1", "  b: 2", "}"]

    @given(LINE_ENDS, st.sampled_from(("", "\ufeff")))
    def test_line_and_column_lead_back_to_the_character(self, body: str, mark: str) -> None:
        text = mark + body
        document = read_text(text)
        for offset in range(len(mark), len(text)):
            position = document.position(offset)
            line = document.line(position.line)
            assert position.offset == offset
            assert position.line == body[: offset - len(mark)].replace("\r\n", "\n").replace("\r", "\n").count("\n") + (
                0 if text[offset - 1 : offset + 1] == "\r\n" and offset > len(mark) else 1
            )
            assert text[offset] in "\r\n" or line[position.column - 1] == text[offset]

    def test_other_separators_of_unicode_end_no_line(self) -> None:
        document = read_text("{ # \u2028 \x85 \x0c\n}")
        assert document.position(8) == Position(1, 9, 8)
        assert document.position(10).line == 2

    def test_a_byte_order_mark_takes_no_column_but_an_offset(self) -> None:
        document = read_text("\ufeff{a: 1\n}")
        assert document.key_span(("a",)) == Span(2, 3)
        assert document.position(2) == Position(1, 2, 2)
        assert document.position(0) == Position(1, 1, 0)
        assert document.line(1) == "{a: 1"

    def test_an_offset_outside_the_text_is_moved_to_its_nearer_end(self) -> None:
        document = read_text("{\n}")
        assert document.position(-5) == Position(1, 1, 0)
        assert document.position(99) == Position(2, 2, 3)

    def test_a_line_that_does_not_exist_is_an_index_error(self) -> None:
        document = read_text("{\n}", filename="a.json")
        for number in (0, 3):
            with pytest.raises(IndexError, match=f"line {number} of a.json, which has 2"):
                document.line(number)
        assert read_text("").line(1) == ""


class TestSpans:
    def test_keys_and_values_are_found_by_their_path(self) -> None:
        document = read_text(CONFIG)
        assert document.value_span((*BETAS, 1)) == Span(44, 48)
        assert document.key_span(BETAS) == Span(29, 36)
        assert document.key_span((*BETAS, 1)) is None
        assert document.key_span(()) is None
        assert document.value_span(()) == Span(0, len(CONFIG) - 1)

    @pytest.mark.parametrize(
        "path", [("x",), (*BETAS, 2), (*BETAS, -1), (*BETAS, "0"), ("optimizer", 0), (*BETAS, 0, 0)]
    )
    def test_a_path_that_does_not_exist_has_no_span(self, path: tuple[str | int, ...]) -> None:
        document = read_text(CONFIG)
        assert document.value_span(path) is None
        assert document.key_span(path) is None

    def test_the_nearest_span_is_that_of_the_closest_parent_that_is_written(self) -> None:
        document = read_text(CONFIG)
        assert document.nearest_span((*BETAS, 1)) == Span(44, 48)
        assert document.nearest_span((*BETAS, 7)) == document.value_span(BETAS)
        assert document.nearest_span((*BETAS, 7), key=True) == document.key_span(BETAS)
        assert document.nearest_span((*BETAS, 1), key=True) == Span(44, 48)
        assert document.nearest_span(("optimizer", "type"), key=True) == document.key_span(("optimizer",))

    def test_the_nearest_span_of_nothing_is_the_first_character(self) -> None:
        assert read_text("# x\n{}").nearest_span(("fp16", "enabled")) == Span(4, 5)
        assert read_text("").nearest_span(("fp16",)) == Span(0, 0)
        assert read_text("\n").nearest_span(()) == Span(0, 1)


class TestBytes:
    def test_the_extension_decides_between_yaml_and_hjson(self) -> None:
        data = b"a: 1, 2\n"
        assert read_bytes(data, filename="a.yaml").value == read_bytes(data, filename="A.YML").value == {"a": "1, 2"}
        assert read_bytes(data, filename="a.yml").syntax is Syntax.YAML
        assert read_bytes(data, filename="a.json").syntax is read_bytes(data, filename="a").syntax is Syntax.HJSON
        assert read_bytes(data, filename="a.yml", syntax=Syntax.JSON).syntax is Syntax.JSON

    def test_bytes_that_are_not_utf_8_are_a_problem_with_their_place_and_the_rest_is_read(self) -> None:
        document = read_bytes('{\n  # größe\n  a: "é"\n}'.encode("latin-1"), filename="a.json")
        (problem,) = document.problems
        assert problem.kind is ProblemKind.ENCODING
        assert problem.message == "not UTF-8 text: byte 0xf6 at byte offset 8 can't be decoded (invalid start byte)"
        assert document.position(problem.span.start) == Position(2, 7, 8)
        assert document.value == {"a": "\ufffd"}

    def test_an_offset_in_bytes_is_turned_into_one_in_characters(self) -> None:
        document = read_bytes('{"é": "😀'.encode() + b'\xff"}', filename="a.json")
        assert document.problems[0].span == Span(8, 9)
        assert document.text[8] == "\ufffd"

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
    def test_utf_16_is_a_problem_but_it_is_read(self, encoding: str) -> None:
        data = '{"a": 1}'.encode(encoding)
        document = read_bytes(data if encoding == "utf-16" else b"\xfe\xff" + data, filename="a.json")
        assert [problem.kind for problem in document.problems] == [ProblemKind.ENCODING]
        assert "UTF-16" in (document.problems[0].help or "")
        assert document.value == {"a": 1}

    def test_a_byte_order_mark_of_utf_8_is_part_of_the_text_and_no_problem_to_hjson(self) -> None:
        document = read_bytes(b'\xef\xbb\xbf{"a": 1}', filename="a.json")
        assert (document.problems, document.value, document.text[0]) == ((), {"a": 1}, "\ufeff")


class TestLimits:
    def test_a_text_that_is_too_large_is_not_read(self) -> None:
        text = '{"a": 1}'
        for document in (
            read_text(text, limits=Limits(size=7)),
            read_bytes(text.encode(), filename="a.json", limits=Limits(size=7)),
        ):
            assert [problem.kind for problem in document.problems] == [ProblemKind.TOO_LARGE]
            assert "more than the 7" in document.problems[0].message
            assert document.value == {}
        assert read_text(text, limits=Limits(size=8)).value == {"a": 1}

    @pytest.mark.parametrize(
        ("text", "found"),
        [("[1]", "a list"), ("1.5", "a number"), ("true", "true"), ('"a"', "a string"), ("null", "null")],
    )
    @pytest.mark.parametrize("syntax", list(Syntax))
    def test_a_root_that_is_no_object_is_named(self, text: str, found: str, syntax: Syntax) -> None:
        (problem,) = read_text(text, syntax=syntax).problems
        assert problem.kind is ProblemKind.NOT_AN_OBJECT
        assert problem.message == f"a config must be an object of keys and values, found {found}"
        assert problem.span == Span(0, 1 if text == "[1]" else len(text))


def imported_by(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter has after a statement."""
    command = [sys.executable, "-c", f"{statement}\nimport sys\nprint(*sys.modules)"]
    root = Path(__file__).resolve().parents[2]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in result.stdout.split()}


class TestImports:
    HEAVY = frozenset({"hjson", "yaml", "json", "pydantic", "numpy", "torch", "deepspeed"})

    def test_reading_hjson_imports_nothing_that_is_heavy(self) -> None:
        statement = "from ds_accum.config.document import read_text\nread_text('{a: [1, \"b\"], c d}')"
        assert not imported_by(statement) & self.HEAVY

    def test_the_look_at_imports_would_see_what_reading_yaml_needs(self) -> None:
        statement = "from ds_accum.config.document import Syntax, read_text\nread_text('a: 1', syntax=Syntax.YAML)"
        assert imported_by(statement) & self.HEAVY == {"yaml"}


PIECES = (
    *("[", '{"a":', "{{", "}]", ",", ":", "1 ", "/*", "#", "'''a''' ", '"a":1,', '"a":{},\n', "\\", "\\n", "a b,", "9"),
    *("1e400,", "\n", "\r", " ", "\t", '"a" ', "[],", "- ", "? ", "&a ", "! ", "|\n", "{a: ", "1:", "\x00", "'"),
)


def hostile_bytes(random: Random, texts: list[str]) -> bytes:
    """Bytes that somebody may give a linter: cut off, changed, in another encoding, nested, or nothing of the kind."""
    kind = random.randrange(8)
    if kind == 0:
        return random.randbytes(random.randrange(200))
    if kind == 1:
        opening = random.choice(("[", "{", '{"a":', "[[", "- ", "a: [", "{a: ", "? ", "'''", "/*", "&a ", "! "))
        return opening.encode() * random.randrange(1, 3000)
    if kind == 2:
        number = random.choice(("9", "1e", "-", "0.", "1_", "1:", "0x")) * random.randrange(1, 6000)
        return f"a: {number}\n".encode()
    text = mutated(random, texts, random.choice((TOKENS, YAML_TOKENS)))
    if kind == 3:
        return text.encode(random.choice(("utf-16", "utf-32", "utf-16-le", "utf-7")), "replace")
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    if kind == 4:
        del data[random.randrange(len(data) + 1) :]
    for _ in range(random.randrange(6)):
        at = random.randrange(len(data) + 1)
        data[at : at + random.randrange(2)] = bytes(
            (random.choice((0, 10, 13, 34, 92, 123, 125, 0x85, 0xC3, 0xED, 0xFF)),)
        )
    return bytes(data)


def is_quick(read: Callable[[], Document], *, seconds: float = 1) -> bool:
    """Whether it takes less processor time than that, at the third try at the latest, as a machine can be busy."""
    for _ in range(3):
        started = time.process_time()
        read()
        if time.process_time() - started < seconds:
            return True
    return False


class TestHostileInput:
    def test_the_look_at_the_clock_would_see_a_slow_reader(self) -> None:
        def slow_reader() -> Document:
            until = time.process_time() + 0.1
            while time.process_time() < until:
                pass
            return read_text("")

        assert not is_quick(slow_reader, seconds=0.1)

    def test_whatever_the_bytes_a_document_comes_back_at_once(self, repository: Path) -> None:
        random = Random(4)
        texts = base_texts(repository, (".json", ".yaml"))
        for _ in range(3000):
            data, syntax = hostile_bytes(random, texts), random.choice(list(Syntax))
            assert_in_bounds(read_bytes(data, filename="a.json", syntax=syntax))
            assert is_quick(lambda: read_bytes(data, filename="a.json", syntax=syntax)), data  # noqa: B023

    @pytest.mark.parametrize(("syntax", "size"), [(Syntax.HJSON, 50_000), (Syntax.JSON, 50_000), (Syntax.YAML, 5_000)])
    @pytest.mark.parametrize("piece", PIECES)
    def test_a_long_text_of_one_piece_is_read_within_a_second(self, piece: str, syntax: Syntax, size: int) -> None:
        for start in ("", "{", "[", "{a: ", '"'):
            text = start + piece * (size // len(piece))
            assert_in_bounds(read_text(text, syntax=syntax))
            assert is_quick(lambda: read_text(text, syntax=syntax)), text[:20]  # noqa: B023
