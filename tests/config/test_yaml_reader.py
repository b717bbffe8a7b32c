"""YAML is read exactly as yaml.safe_load reads it, within limits, and every span leads back to its value."""

from __future__ import annotations

import datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ds_accum.config.document import Document, Limits, ProblemKind, Span, Syntax, read_text
from tests.config.texts import (
    YAML_BY_HAND,
    YAML_TOKENS,
    assert_in_bounds,
    base_texts,
    identical,
    is_limited,
    mutated,
    refusals,
    token_soups,
    walk,
)

PLENTY = settings(max_examples=700, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)

SCALARS = (
    *("1", "auto", '"q # x"', "'it''s'", "true", "null", "~", "", "1.5", "2001-01-01", "2001-01-01T10:00:00Z", "a b"),
    *("é😀", "1e3", "1.0e3", "0x1F", "010", "1_000", "on", ".nan", '{a: 1, "b": [2, 3]}', "[1, 2,]", "[]", "{}", "=x"),
    *("!!str 5", "1:30", "two\nINDENT  lines", "|\nINDENT one\nINDENT   two\n", ">-\nINDENT one\n"),
)


@st.composite
def yaml_texts(draw: st.DrawFn) -> str:
    """Valid YAML with anchors, merges, every kind of scalar and of indentation."""
    anchors: list[str] = []

    def block(indent: int, depth: int) -> str:
        is_list = draw(st.integers(0, 3)) == 0
        entries = []
        for index in range(draw(st.integers(1, 3))):
            name = draw(st.sampled_from((f"k{index}", f'"q{index}"', f"'s{index}'", "key", "true", "2001-01-01")))
            entries.append(" " * indent + ("- " if is_list else f"{name}:") + value(indent + 2, depth))
        if anchors and not is_list and draw(st.integers(0, 3)) == 0:
            entries.append(" " * indent + f"<<: *{draw(st.sampled_from(anchors))}\n")
        return "".join(entries)

    def value(indent: int, depth: int) -> str:
        kind = draw(st.integers(0, 9))
        if depth < 3 and kind < 4:
            anchor = draw(st.sampled_from(("", "", "", f" &x{len(anchors)}")))
            nested = anchor + draw(st.sampled_from(("", " # c"))) + "\n" + block(indent, depth + 1)
            if anchor:
                anchors.append(anchor[2:])
            return nested
        if anchors and kind == 9:
            return f" *{draw(st.sampled_from(anchors))}\n"
        scalar = draw(st.sampled_from(SCALARS)).replace("INDENT", " " * indent) if kind < 8 else "x"
        return f" {scalar}" + ("" if scalar.endswith("\n") else draw(st.sampled_from(("\n", " # c\n", "  \n\n"))))

    head = draw(st.sampled_from(("", "", "---\n", "# c\n", "%YAML 1.1\n---\n")))
    return head + block(draw(st.sampled_from((0, 0, 2))), 0) + draw(st.sampled_from(("", "...\n")))


def reads_again(document: Document, span: Span, value: Any) -> bool:
    """Whether the text in the span, alone or as it stood, gives the value; not asked where it needs an anchor."""
    cut = document.text[span.start : span.end]
    if any(sign in cut for sign in ("*", "&", "<<", "!", "\ufeff")):
        return True
    line_start = max(document.text.rfind(line_end, 0, span.start) for line_end in "\n\r\x85\u2028\u2029") + 1
    indented = " " * (span.start - line_start) + cut
    return any(_is_read_as(text, value) for text in (f"{cut}\n", f"{indented}\n", cut, f"[{cut}\n]"))


def _is_read_as(text: str, value: Any) -> bool:
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return False
    found = found[0] if text.startswith("[") and isinstance(found, list) and len(found) == 1 else found
    if isinstance(found, str) and isinstance(value, str):
        # How many line ends a block scalar keeps depends on what follows it.
        return found.rstrip("\n") == value.rstrip("\n")
    return repr(found) == repr(value)


def names_again(document: Document, span: Span, key: Any) -> bool:
    cut = document.text[span.start : span.end]
    if not cut or any(sign in cut for sign in ("*", "&", "!", "\ufeff")):
        return True
    several_lines = cut.replace("\n", "\n  ")
    return any(_is_read_as(text, {key: 1}) for text in (f"{cut}: 1\n", f"? {several_lines}\n: 1\n"))


def assert_reads_like_yaml(text: str) -> None:
    document = read_text(text, syntax=Syntax.YAML)
    for problem in document.problems:
        assert 0 <= problem.span.start <= problem.span.end <= len(text), problem
    if is_limited(document):
        return
    try:
        expected = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError):
        assert refusals(document), repr(document.value)
        return
    assert not refusals(document)
    # Not all of YAML's types can be compared: two sets, or two dates with and without a zone. Their texts can.
    assert repr(document.value) == repr(expected)
    for path, value in walk(document.value):
        span = document.value_span(path)
        assert span is not None or (path == () and value is None), path
        assert span is None or reads_again(document, span, value), (path, text[span.start : span.end])
        key_span = document.key_span(path)
        is_item = not path or any(value is item for item in [document.value]) or key_span is None
        assert is_item or (key_span is not None and names_again(document, key_span, path[-1])), path


class TestAgreement:
    def test_every_file_of_the_corpus_is_read_as_pyyaml_reads_it(self, corpus: Path) -> None:
        files = sorted(path for path in (corpus / "files").iterdir() if path.suffix in (".yaml", ".yml"))
        assert files
        for file in files:
            assert_reads_like_yaml(file.read_bytes().decode("utf-8"))

    def test_a_config_with_everything_is_read_as_pyyaml_reads_it(self) -> None:
        assert_reads_like_yaml(YAML_BY_HAND)

    @PLENTY
    @given(yaml_texts())
    def test_documents_are_read_as_pyyaml_reads_them(self, text: str) -> None:
        assert_reads_like_yaml(text)

    @PLENTY
    @given(token_soups(YAML_TOKENS))
    def test_token_soup_is_read_or_refused_as_pyyaml_does(self, text: str) -> None:
        assert_reads_like_yaml(text)

    def test_changed_configs_are_read_or_refused_as_pyyaml_does(self, repository: Path) -> None:
        random = Random(3)
        texts = base_texts(repository, (".yaml", ".yml"))[1:]
        for _ in range(1000):
            assert_reads_like_yaml(mutated(random, texts, YAML_TOKENS))


class TestPlaces:
    def test_offsets_count_code_points_behind_marks_and_wide_characters(self) -> None:
        for start in ("", "\ufeff"):
            document = read_text(f"{start}é: 😀\r\nb: [x, 😀😀, y]\n", syntax=Syntax.YAML)
            assert document.value == {"é": "😀", "b": ["x", "😀😀", "y"]}
            for path, piece in {("é",): "😀", ("b", 1): "😀😀", ("b", 2): "y", ("b",): "[x, 😀😀, y]"}.items():
                span = document.value_span(path)
                assert span is not None
                assert document.text[span.start : span.end] == piece

    def test_a_block_ends_with_its_last_value_and_not_with_the_comments_behind_it(self) -> None:
        text = "a:\n  b: 1\n  c: x # why\n\n# next\nd: 2\n"
        document = read_text(text, syntax=Syntax.YAML)
        span = document.value_span(("a",))
        assert span is not None
        assert text[span.start : span.end] == "b: 1\n  c: x"

    def test_an_alias_is_where_it_is_written_and_its_members_are_where_the_anchor_is(self) -> None:
        text = "base: &b {x: 1}\ncopy: *b\nlist: [*b]\nmerged:\n  <<: *b\n  y: 2\n"
        document = read_text(text, syntax=Syntax.YAML)
        assert document.value["merged"] == {"x": 1, "y": 2}
        assert document.value_span(("copy",)) == Span(22, 24)
        assert document.value_span(("list", 0)) == Span(32, 34)
        for path in (("base", "x"), ("copy", "x"), ("list", 0, "x"), ("merged", "x")):
            assert document.value_span(path) == Span(13, 14), path

    def test_keys_that_are_no_strings_have_their_own_types_and_places(self) -> None:
        document = read_text("2: a\nyes: b\n2024-05-01: c\n", syntax=Syntax.YAML)
        day = datetime.date(2024, 5, 1)
        assert document.value == {2: "a", True: "b", day: "c"}
        assert document.key_span((True,)) == Span(5, 8)
        assert document.key_span((day,)) == Span(12, 22)  # type: ignore[arg-type]


class TestMistakes:
    @pytest.mark.parametrize(
        ("text", "kind", "pointed_at", "message", "remedy", "value"),
        [
            (
                "a: 1\nb:\n\tc: 2\n",
                ProblemKind.SYNTAX,
                "\tc",
                "found character '\\t' that cannot start any token",
                "spaces",
                {"a": 1},
            ),
            (
                "a: 1\nb: c: 2\n",
                ProblemKind.SYNTAX,
                ":",
                "mapping values are not allowed here",
                "quotes",
                {"a": 1, "b": "c"},
            ),
            (
                "a: 1\n  b: 2\n",
                ProblemKind.SYNTAX,
                ":",
                "mapping values are not allowed here",
                "indentation",
                {"a": "1 b"},
            ),
            ("a: *b\n", ProblemKind.SYNTAX, "*b", "found undefined alias 'b'", "anchor", {"a": None}),
            (
                "a: 1\n---\nb: 2\n",
                ProblemKind.SYNTAX,
                "---",
                "expected a single document, but another one starts",
                "one document",
                {"a": 1},
            ),
            (
                "a: 1\nb: 2\na: 3\n",
                ProblemKind.DUPLICATE_KEY,
                "a",
                'the key "a" appears twice, first at line 1',
                "remove",
                {"a": 3, "b": 2},
            ),
            (
                "a: !!python/object:os.system ls\nb: 1\n",
                ProblemKind.TAG,
                "!!python/object:os.system",
                "the tag 'tag:yaml.org,2002:python/object:os.sy...' is not one that safe loading knows",
                "remove the tag",
                {"a": "ls", "b": 1},
            ),
            (
                "a: 2024-13-01\nb: 1\n",
                ProblemKind.NUMBER,
                "2024-13-01",
                "'2024-13-01' can't be read as timestamp: month must be in 1..12",
                "quotes",
                {"a": "2024-13-01", "b": 1},
            ),
            ("? [a]\n: 1\nb: 2\n", ProblemKind.SYNTAX, "[a]", "a list or a mapping can't be a key", "", {"b": 2}),
            (
                "a: \x07\n",
                ProblemKind.SYNTAX,
                "\x07",
                "the character U+0007 is not allowed in YAML",
                "",
                {"a": "\ufffd"},
            ),
        ],
    )
    def test_a_mistake_is_named_and_pointed_at_and_the_rest_is_read(
        self, text: str, kind: ProblemKind, pointed_at: str, message: str, remedy: str, value: Any
    ) -> None:
        document = read_text(text, syntax=Syntax.YAML)
        problem = document.problems[0]
        assert (problem.kind, problem.message) == (kind, message)
        assert text[problem.span.start : problem.span.end] == pointed_at
        assert remedy in (problem.help or "")
        assert identical(document.value, value)
        assert_in_bounds(document)

    def test_an_empty_file_is_null_and_a_problem(self) -> None:
        document = read_text("# nothing\n", syntax=Syntax.YAML)
        assert document.value is None
        assert [problem.kind for problem in document.problems] == [ProblemKind.EMPTY]


class TestLimits:
    def test_aliases_that_expand_without_measure_are_stopped_before_they_do(self) -> None:
        text = "a0: &a0 [1, 1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
        document = read_text(text, syntax=Syntax.YAML)
        assert [problem.kind for problem in document.problems] == [ProblemKind.TOO_MANY_ALIASES]
        assert sum(1 for _ in walk(document.value)) <= Limits().nodes

    def test_an_alias_within_its_own_anchor_is_refused(self) -> None:
        document = read_text("a: &a [1, *a]\nb: 2\n", syntax=Syntax.YAML)
        assert [problem.kind for problem in document.problems] == [ProblemKind.TOO_MANY_ALIASES]
        assert document.value == {"a": [1, None], "b": 2}

    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ("a: &a [1]\nb: [" + "*a, " * 11 + "]\n", ProblemKind.TOO_MANY_ALIASES),
            ("[" * 30, ProblemKind.TOO_DEEP),
            ("a: &a [[[1]]]\nb: [[[[[[*a]]]]]]\n", ProblemKind.TOO_DEEP),
            ("- 1\n" * 101, ProblemKind.TOO_LARGE),
            ("a: " + "9" * 51 + "\n", ProblemKind.NUMBER),
            ("a: 1" + ":59" * 20 + "\n", ProblemKind.NUMBER),
        ],
    )
    def test_each_limit_has_its_problem(self, text: str, kind: ProblemKind) -> None:
        limits = Limits(aliases=10, depth=8, nodes=100, integer_digits=50)
        document = read_text(text, syntax=Syntax.YAML, limits=limits)
        assert kind in [problem.kind for problem in document.problems]
        assert kind not in [problem.kind for problem in read_text(text, syntax=Syntax.YAML).problems]
