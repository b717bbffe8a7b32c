"""Hjson is read exactly as the hjson package reads it for DeepSpeed, and every span leads back to its value."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

import hjson
import pytest
from hypothesis import HealthCheck, given, settings

from ds_accum.config.document import Document, Limits, ProblemKind, Span, read_text
from tests.config.texts import (
    TOKENS,
    assert_in_bounds,
    base_texts,
    hjson_texts,
    identical,
    is_limited,
    mutated,
    refusals,
    token_soups,
    walk,
)

PLENTY = settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


def as_opened(text: str) -> str:
    """The text as Python reads it from a file that is opened as text, which is how DeepSpeed opens it."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def reads_again(document: Document, span: Span, value: Any) -> bool:
    """Whether the text in the span alone, put into another document, gives the value."""
    text = as_opened(document.text[: span.start]), as_opened(document.text[span.start : span.end])
    before, cut = text
    if "'''" in cut and "\n" not in before:
        # hjson counts the indentation of these quotes from the end of the text; alone it can't be the same.
        return True
    column = len(before) - before.rfind("\n") - 1
    return identical(hjson.loads("{k:\n" + " " * column + cut + "\n}")["k"], value)


def names_again(document: Document, span: Span, key: str) -> bool:
    """Whether the text in the span is the key; a blank before the colon makes hjson strip more."""
    cut = as_opened(document.text[span.start : span.end])
    return key in {name for text in (f"{{{cut}:1}}", f"{{{cut} :1}}") for name in _keys(text)}


def _keys(text: str) -> list[str]:
    try:
        return list(hjson.loads(text))
    except ValueError:
        return []


def assert_reads_like_hjson(text: str) -> None:
    document = read_text(text)
    assert_in_bounds(document)
    if is_limited(document):
        return
    try:
        expected = hjson.loads(as_opened(text))
    except (ValueError, IndexError, OverflowError):
        # An IndexError is how hjson fails on an open comment, an OverflowError how it fails on 1e400.
        assert refusals(document) or document.problems[0].kind is ProblemKind.EMPTY, repr(document.value)
        return
    assert not refusals(document)
    assert identical(document.value, expected)
    is_object = isinstance(expected, dict)
    assert is_object != any(problem.kind is ProblemKind.NOT_AN_OBJECT for problem in document.problems)
    for path, value in walk(document.value):
        span = document.value_span(path)
        if path == () and is_object and (span is None or document.text[span.start] != "{"):
            continue  # an empty text, or a root without braces, whose members are checked one by one
        assert span is not None, path
        assert reads_again(document, span, value), (path, document.text[span.start : span.end])
        key_span = document.key_span(path)
        if path and isinstance(path[-1], str):
            assert key_span is not None, path
            assert names_again(document, key_span, path[-1]), (path, document.text[key_span.start : key_span.end])
        else:
            assert key_span is None


class TestAgreement:
    def test_every_file_of_the_corpus_is_read_as_hjson_reads_it(self, corpus: Path) -> None:
        files = sorted((corpus / "files").iterdir())
        assert files
        for file in files:
            assert_reads_like_hjson(file.read_bytes().decode("utf-8"))

    def test_every_ready_config_is_read_as_hjson_reads_it(self, repository: Path) -> None:
        for text in base_texts(repository, (".json", ".yaml")):
            assert_reads_like_hjson(text)

    @PLENTY
    @given(hjson_texts())
    def test_decorated_documents_are_read_as_hjson_reads_them(self, text: str) -> None:
        assert_reads_like_hjson(text)

    @PLENTY
    @given(token_soups(TOKENS))
    def test_token_soup_is_read_or_refused_as_hjson_does(self, text: str) -> None:
        assert_reads_like_hjson(text)

    def test_changed_configs_are_read_or_refused_as_hjson_does(self, repository: Path) -> None:
        random = Random(1)
        texts = base_texts(repository, (".json",))
        for _ in range(3000):
            assert_reads_like_hjson(mutated(random, texts, TOKENS))

    def test_the_comparison_sees_another_type_another_order_and_another_sign(self) -> None:
        assert not identical({"a": 1}, {"a": 1.0})
        assert not identical({"a": 1}, {"a": True})
        assert not identical({"a": 1, "b": 2}, {"b": 2, "a": 1})
        assert not identical([0.0], [-0.0])
        assert identical({"a": [math.nan]}, {"a": [math.nan]})

    def test_the_comparison_sees_a_span_that_is_off_by_one(self) -> None:
        document = read_text('{"stage": 12}')
        assert reads_again(document, Span(10, 12), 12)
        assert not reads_again(document, Span(10, 11), 12)
        assert not names_again(document, Span(2, 7), "tage")


class TestValues:
    @pytest.mark.parametrize(
        ("token", "value"),
        [
            ("8.0", 8),
            ("1e1", 10),
            ("-0.0", 0),
            ("9999999999.0", 9999999999),
            ("1e10", 1e10),
            ("1.5", 1.5),
            ("1e-400", 0),
            ("08", "08"),
            ("+8", "+8"),
            ("1_000", "1_000"),
            ("True", "True"),
            ("NaN", "NaN"),
            ("fp32, # note", "fp32, # note"),
            ("true // yes", True),
            ("1٢", 12),
            ("null\x0b", None),
            ("\xa0null", "null"),
            ("'it\\'s'", "it's"),
            ('"\\u+123"', "\u0123"),
            ('"\\ud83d\\ude00"', "😀"),
            ('"\\ud83d"', "\ud83d"),
        ],
    )
    def test_a_value_alone_on_its_line_is_what_hjson_makes_of_it(self, token: str, value: Any) -> None:
        document = read_text(f"{{\n  key: {token}\n}}")
        assert document.problems == ()
        assert identical(document.value, {"key": value})
        assert identical(hjson.loads(document.text), {"key": value})

    def test_a_file_is_read_with_one_kind_of_line_end_and_base64_as_it_stands(self) -> None:
        text = "{a:\n  '''one\rtwo'''\n}"
        assert read_text(text).value == {"a": "one\ntwo"}
        assert read_text(text, universal_newlines=False).value == {"a": "onetwo"} == hjson.loads(text)

    def test_spans_count_both_characters_of_a_windows_line_end(self) -> None:
        document = read_text("{\r\n  a: 1\r\n  a: word\r\n}\r\n")
        assert document.value == {"a": "word"}
        assert document.value_span(()) == Span(0, 23)
        assert document.value_span(("a",)) == Span(16, 20)
        assert document.key_span(("a",)) == Span(13, 14)
        assert [(problem.span, problem.related) for problem in document.problems] == [(Span(13, 14), (Span(5, 6),))]

    def test_the_last_of_two_equal_keys_wins_and_the_spans_of_the_first_are_gone(self) -> None:
        document = read_text('{"a": {"x": 1}, "b": 0, "a": {"y": 2}}')
        assert document.value == {"a": {"y": 2}, "b": 0}
        assert document.value_span(("a", "x")) is None
        assert document.value_span(("a", "y")) == Span(35, 36)
        (problem,) = document.problems
        assert problem.kind is ProblemKind.DUPLICATE_KEY
        assert (problem.span, problem.related, problem.path) == (Span(24, 27), (Span(1, 4),), ("a",))

    def test_an_empty_text_is_an_empty_object_but_not_behind_a_byte_order_mark(self) -> None:
        assert read_text(" # nothing\n").problems == ()
        assert read_text(" # nothing\n").value == {}
        assert [problem.kind for problem in read_text("\ufeff\n").problems] == [ProblemKind.EMPTY]


MISTAKES = [
    # (text, the piece that the problem points at, message, part of the help, what is read in spite of it)
    (
        '{"a": 1\n "b": 2',
        "{",
        "the '{' of line 1 is never closed: expected '}' before the end of the text",
        "",
        {"a": 1, "b": 2},
    ),
    (
        '{\n  "fp16": {\n    "enabled": true,\n\n  "zero": {\n    "stage": 2\n  }\n}\n',
        "{",
        "the '{' of line 2 is never closed: expected '}' before the '}' of line 8",
        "indentation",
        {"fp16": {"enabled": True, "zero": {"stage": 2}}},
    ),
    (
        '{"zero": {"stage": 2,git l\n"overlap_comm": true}}',
        "git l",
        "expected a key or '}' after the value of \"stage\", found 'git l'",
        "",
        {"zero": {"stage": 2, "overlap_comm": True}},
    ),
    ('{"a": 1}\n}', "}", "expected the end of the text after the '}' of line 1, found '}'", "remove", {"a": 1}),
    (
        '{"a": 1}\n"b": 2\n}',
        '"b"',
        "expected the end of the text after the '}' of line 1, found \"b\"",
        "remove",
        {"a": 1, "b": 2},
    ),
    (
        '{"a": "x,\n "b": 1}',
        '"x,',
        'the string is not closed before the end of its line: expected "',
        "close it",
        {"a": "x", "b": 1},
    ),
    ('{"a" 1, "b": 2}', "1", "expected ':' after the key \"a\", found '1'", "", {"a": 1, "b": 2}),
    ("{a = 1}", "=", "expected ':' after the key 'a', found '='", "instead of '='", {"a": 1}),
    ('{"a": , "b": 2}', ",", "expected a value for the key \"a\", found ','", "", {"b": 2}),
    ('{"a": [1, 2}', "}", "expected ']' to close the '[' of line 1, found '}'", "", {"a": [1, 2]}),
    ('{"a": [{"x": 1 ]}', "]", "expected '}' to close the '{' of line 1, found ']'", "", {"a": [{"x": 1}]}),
    ('{"a": [0.9, , 1]}', ",", "expected a value or ']' after item 0, found ','", "", {"a": [0.9, 1]}),
    (
        '{"a": [1\n, "b": 1}',
        '"b"',
        "expected ']' to close the '[' of line 1, found the key \"b\"",
        "",
        {"a": [1], "b": 1},
    ),
    (
        '{"a": [[1]: 1]}',
        ":",
        "expected a value or ']' after item 0, found ':'",
        "'[' of line 1",
        {"a": [[1], 1]},
    ),
    ('{"a": 1,, "b": 2}', ",", "expected a key or '}' after the value of \"a\", found ','", "remove", {"a": 1, "b": 2}),
    ('{"a": {{ x }}, "b": 2}', "{{ x }}", "expected a value for the key \"a\", found '{{ x }}'", "template", {"b": 2}),
    ('{"a": [{{ x }}, 2]}', "{{ x }}", "expected a value or ']', found '{{ x }}'", "template", {"a": [2]}),
    ("{{ config }}", "{{ config }}", "expected a config, found '{{ config }}'", "template", {}),
    ('{ {"a": 1}, "b": 2}', "{", "expected a key or '}', found '{'", "", {"b": 2}),
    (
        '{"a": True}',
        "True}",
        (
            "the '{' of line 1 is never closed: without quotes, the value 'True}' takes the rest of its line, "
            "brackets included"
        ),
        "Python",
        {"a": "True}"},
    ),
    ('{"a": "C:\\Users"}', "\\U", "the escape '\\U' does not exist", "backslash", {"a": "C:\\Users"}),
    ('{"a": "\\u12"}', "\\u", "expected four hexadecimal digits after '\\u', found '12\"}'", "", {"a": "\\u12"}),
    (
        '{"a": "x\ty"}',
        "\t",
        "the control character U+0009 can't stand in a string as it is",
        "write \\t",
        {"a": "x\ty"},
    ),
    ('{"a": 1 /* b }', "/*", "the comment of line 1 is never closed: expected '*/'", "", {"a": 1}),
    ("{a: 1, b: '''x", "'''", "the ''' of line 1 is never closed: expected '''", "", {"a": 1}),
    (
        "{a: '''x'''}",
        "'''",
        "a ''' string needs a line end somewhere in the text, or hjson fails to read it",
        "",
        {"a": "x"},
    ),
    (
        '{"a": 1\n=======\n"b": 2}',
        "=======",
        "expected a key or '}' after the value of \"a\", found '======='",
        "merge conflict",
        {"a": 1, "b": 2},
    ),
    (
        '{"a": 1}\n```\n',
        "```",
        "expected the end of the text after the '}' of line 1, found '```'",
        "code block",
        {"a": 1},
    ),
    (
        "a: 1\n- b",
        "- b",
        "expected a key or the end of the text after the value of \"a\", found '- b'",
        "YAML",
        {"a": 1},
    ),
]


class TestMistakes:
    @pytest.mark.parametrize(("text", "pointed_at", "message", "remedy", "value"), MISTAKES)
    def test_a_mistake_is_named_and_pointed_at_and_the_rest_is_read(
        self, text: str, pointed_at: str, message: str, remedy: str, value: Any
    ) -> None:
        with pytest.raises((ValueError, IndexError)):
            hjson.loads(text)
        document = read_text(text)
        problem = document.problems[0]
        assert (problem.kind, problem.message) == (ProblemKind.SYNTAX, message)
        assert text[problem.span.start : problem.span.end] == pointed_at
        assert remedy in (problem.help or "")
        assert document.value == value
        assert_in_bounds(document)

    def test_one_mistake_is_reported_once_and_two_on_their_own_lines_twice(self) -> None:
        assert len(read_text('{"a": 1, b c, d e, "f": 2}').problems) == 1
        document = read_text('{"a": 1,\n b c\n "d" 2\n "e": 3}')
        assert [document.position(problem.span.start).line for problem in document.problems] == [2, 3]
        assert document.value == {"a": 1, "d": 2, "e": 3}

    def test_reading_stops_after_the_mistakes_that_the_limits_allow(self) -> None:
        document = read_text("{\n" + "a b\n" * 100 + "}", limits=Limits(problems=7))
        assert len(document.problems) == 7

    def test_only_the_first_duplicates_are_reported(self) -> None:
        document = read_text("{" + '"a": 1, ' * 100 + "}", limits=Limits(problems=7))
        assert [problem.kind for problem in document.problems] == [ProblemKind.DUPLICATE_KEY] * 7

    @pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 4301])
    def test_a_number_on_which_hjson_crashes_is_a_problem_of_its_own(self, number: str) -> None:
        with pytest.raises((OverflowError, ValueError)):
            hjson.loads(f'{{"a": {number}}}')
        document = read_text(f'{{"a": {number}, "b": 1}}')
        assert [problem.kind for problem in document.problems] == [ProblemKind.NUMBER]
        assert document.problems[0].span == Span(6, 6 + len(number))
        assert document.value == {"a": math.copysign(math.inf, float(number)), "b": 1}

    def test_nesting_is_read_up_to_the_limit_and_no_further(self) -> None:
        assert read_text("[" * 100 + "]" * 100).problems[0].kind is ProblemKind.NOT_AN_OBJECT
        document = read_text('{"a": ' * 101 + "1" + "}" * 101)
        (problem,) = document.problems
        assert (problem.kind, problem.span.start) == (ProblemKind.TOO_DEEP, 600)
        assert [problem.kind for problem in read_text("[" * 500_000).problems] == [ProblemKind.TOO_DEEP]

    @pytest.mark.parametrize("text", ["[1]", "5", "hello", '"x"', "'''x\n'''", "true", "null"])
    def test_a_root_that_is_no_object_is_a_problem_but_its_value_is_kept(self, text: str) -> None:
        document = read_text(text)
        assert [problem.kind for problem in document.problems] == [ProblemKind.NOT_AN_OBJECT]
        assert identical(document.value, hjson.loads(text))
