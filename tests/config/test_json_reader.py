"""Strict JSON is read exactly as json.loads reads it, and every span leads back to its value."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from ds_accum.config.document import ProblemKind, Syntax, read_text
from tests.config.texts import (
    TOKENS,
    assert_in_bounds,
    base_texts,
    identical,
    is_limited,
    json_texts,
    mutated,
    refusals,
    token_soups,
    walk,
)

PLENTY = settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


def assert_reads_like_json(text: str) -> None:
    document = read_text(text, syntax=Syntax.JSON)
    assert_in_bounds(document)
    if is_limited(document):
        return
    try:
        expected = json.loads(text)
    except ValueError:
        assert refusals(document) or document.problems[0].kind is ProblemKind.EMPTY, repr(document.value)
        return
    assert not refusals(document)
    assert identical(document.value, expected)
    for path, value in walk(document.value):
        span, key_span = document.value_span(path), document.key_span(path)
        assert span is not None, path
        assert identical(json.loads(text[span.start : span.end]), value), path
        if path and isinstance(path[-1], str):
            assert key_span is not None, path
            assert json.loads(text[key_span.start : key_span.end]) == path[-1]
        else:
            assert key_span is None


class TestAgreement:
    def test_every_file_of_the_corpus_is_read_or_refused_as_json_does(self, corpus: Path) -> None:
        files = sorted((corpus / "files").glob("*.json"))
        assert files
        for file in files:
            assert_reads_like_json(file.read_bytes().decode("utf-8"))

    @PLENTY
    @given(json_texts())
    def test_json_documents_are_read_as_json_reads_them(self, text: str) -> None:
        assert_reads_like_json(text)

    @PLENTY
    @given(token_soups(TOKENS))
    def test_token_soup_is_read_or_refused_as_json_does(self, text: str) -> None:
        assert_reads_like_json(text)

    def test_changed_configs_are_read_or_refused_as_json_does(self, repository: Path) -> None:
        random = Random(2)
        texts = base_texts(repository, (".json",))
        for _ in range(2000):
            assert_reads_like_json(mutated(random, texts, TOKENS))

    def test_what_json_takes_beyond_the_standard_is_taken(self) -> None:
        document = read_text('{"a": NaN, "b": [-Infinity, 1e400, "NaN"], "a": 2}', syntax=Syntax.JSON)
        assert [problem.kind for problem in document.problems] == [ProblemKind.DUPLICATE_KEY]
        assert document.value == {"a": 2, "b": [float("-inf"), float("inf"), "NaN"]}


class TestMistakes:
    @pytest.mark.parametrize(
        ("text", "pointed_at", "message", "remedy", "value"),
        [
            ('{"a": 1,}', ",", "expected a key in double quotes, found '}'", "remove the comma", {"a": 1}),
            ('{"a": [1, ]}', ",", "expected a value, found ']'", "remove the comma", {"a": [1]}),
            ('{"a": 1} // b', "// b", "expected the end of the text, found '// b'", "no comments", {"a": 1}),
            ("{'a': 1}", "'a'", "expected a key in double quotes, found 'a'", "double quotes", {"a": 1}),
            ("{a: 1}", "a", "expected a key in double quotes, found 'a'", "", {"a": 1}),
            ('{"a": True}', "True", "expected a value, found 'True'", "Python", {"a": "True}"}),
            ('{"a": 01}', "1", "expected ',' or a closing bracket, found '1'", "leading", {"a": "01}"}),
            (
                '{"a": 1',
                "{",
                "the '{' of line 1 is never closed: expected '}' before the end of the text",
                "",
                {"a": 1},
            ),
            ('{"a": "x}', '"x}', 'the string is not closed before the end of the text: expected "', "", {"a": "x}"}),
            ("\ufeff{}", "\ufeff", "a JSON text must not begin with a byte order mark", "without it", {}),
        ],
    )
    def test_a_mistake_is_named_and_pointed_at_and_the_rest_is_read(
        self, text: str, pointed_at: str, message: str, remedy: str, value: Any
    ) -> None:
        with pytest.raises(ValueError, match=r"."):
            json.loads(text)
        document = read_text(text, syntax=Syntax.JSON)
        problem = document.problems[0]
        assert (problem.kind, problem.message) == (ProblemKind.SYNTAX, message)
        assert text[problem.span.start : problem.span.end] == pointed_at
        assert remedy in (problem.help or "")
        assert document.value == value

    def test_a_text_without_value_is_empty_here_though_not_in_hjson(self) -> None:
        assert [problem.kind for problem in read_text(" \n", syntax=Syntax.JSON).problems] == [ProblemKind.EMPTY]
        assert read_text(" \n").problems == ()

    def test_an_integer_with_too_many_digits_is_found_behind_other_mistakes_too(self) -> None:
        for text in ('{"a": ' + "9" * 4301 + "}", "[" + "9" * 4301 + " x"):
            with pytest.raises(ValueError, match="4300 digits"):
                json.loads(text)
            document = read_text(text, syntax=Syntax.JSON)
            problem = next(problem for problem in document.problems if problem.kind is ProblemKind.NUMBER)
            assert text[problem.span.start : problem.span.end] == "9" * 4301
