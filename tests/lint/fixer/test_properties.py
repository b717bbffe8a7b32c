"""Whatever the text and the change: the values named change, and nothing else, neither another value nor a character."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_accum.config.document import Document, Path, Syntax, read_text
from ds_accum.lint.fix import Change, Fix, MoveKey, RemoveKey, RenameKey, SetValue
from ds_accum.lint.fixer import text_fix
from ds_accum.lint.fixer.intended import NotApplicable, changed, is_same
from ds_accum.lint.fixer.pieces import edited
from tests.config.texts import YAML_BY_HAND, hjson_texts, walk
from tests.conformance.noise import write

NEW_VALUES: tuple[Any, ...] = (None, True, 0, -3, 2.5, 1e-5, 5e8, "fp16", "a b", "no", "#", "", {}, {"x": 1}, [1, "y"])
# May be deleted along with what a fix names, or inserted: what sets members apart, and nothing that anybody wrote.
BETWEEN = frozenset(" \t\r\n,")


@st.composite
def values(draw: st.DrawFn) -> dict[str, Any]:
    keys = st.sampled_from(("stage", "zero_optimization", "type", "a-b", "c d", "é", "on", "1"))
    leaves = st.sampled_from((True, None, 1, -2.5, 5e8, "auto", "10", "5e8", "x: y", "", "# no comment", [1, "a"], []))
    trees = st.recursive(leaves, lambda inner: st.dictionaries(keys, inner, max_size=4), max_leaves=12)
    return draw(st.dictionaries(keys, trees, min_size=1, max_size=5))


@st.composite
def changes_of(draw: st.DrawFn, value: Any) -> Change:
    """A change that a config with this value allows, or nearly."""
    objects = [path for path, item in walk(value) if isinstance(item, dict)]
    members = [path for path, _ in walk(value) if path and isinstance(path[-1], str)]
    kind = draw(st.integers(0, 4)) if members else 0
    if kind == 0:
        missing = draw(st.sampled_from((("new",), ("new", "inner"), ("stage",))))
        return SetValue((*draw(st.sampled_from(objects)), *missing), draw(st.sampled_from(NEW_VALUES)))
    path = draw(st.sampled_from(members))
    if kind == 1:
        return SetValue(path, draw(st.sampled_from(NEW_VALUES)))
    if kind == 2:
        return RemoveKey(path)
    if kind == 3:
        return RenameKey(path, draw(st.sampled_from(("renamed", "c d", "yes"))))
    return MoveKey(path, (*draw(st.sampled_from(objects)), "moved"))


def deleted(document: Document, change: Change) -> Iterator[str]:
    """What the edits of a change delete outside of the keys and values that it names; fails where it has no fix."""
    fix = text_fix(document, Fix("change it", (change,)))
    assert fix is not None
    key, value = document.key_span(change.at), document.value_span(change.at)
    named: set[int] = set()
    if isinstance(change, RenameKey) and key is not None:
        named.update(range(*key))
    elif isinstance(change, SetValue) and value is not None:
        named.update(range(*value))
    elif key is not None and value is not None:
        named.update(range(key.start, value.end))
    for edit in fix.edits:
        yield "".join(document.text[i] for i in range(edit.start, edit.end) if i not in named)


def check(document: Document, change: Change, *, must_be_said: bool) -> None:
    """A fix of a document changes exactly what it names, in values and in characters, or there is none."""
    fix = text_fix(document, Fix("change it", (change,)))
    try:
        wanted = changed(document.value, change)
    except NotApplicable:
        assert fix is None
        return
    if fix is None:
        assert not must_be_said, "the text can say this"
        return
    after = read_text(edited(document.text, fix.edits), syntax=document.syntax)
    assert not after.problems
    assert is_same(after.value, wanted)
    assert set("".join(deleted(document, change))) <= BETWEEN
    assert all(edit.start < edit.end or edit.text for edit in fix.edits)
    assert all(first.end < second.start for first, second in zip(fix.edits, fix.edits[1:], strict=False))


def is_within_lines(document: Document, path: Path) -> bool:
    """Whether a value stands on one line: only such a value is moved."""
    span = document.value_span(path)
    return span is not None and len(document.text[span.start : span.end].splitlines()) < 2


def can_be_said(document: Document, change: Change) -> bool:
    """Moves have limits, everything else can be said in JSON."""
    if not isinstance(change, MoveKey):
        return True
    # A value can't move into itself.
    return is_within_lines(document, change.at) and change.to[: len(change.at)] != change.at


@settings(deadline=None, max_examples=100)
@given(st.data(), values(), st.sampled_from((None, 2, 4, "\t")), st.sampled_from(("\n", "\r\n", "\r")), st.booleans())
def test_json_changes_where_a_fix_says_and_nowhere_else(
    data: st.DataObject, value: dict[str, Any], indent: Any, line_end: str, mark: bool
) -> None:
    text = ("\ufeff" if mark else "") + json.dumps(value, indent=indent).replace("\n", line_end)
    document = read_text(text)
    change = data.draw(changes_of(document.value))
    check(document, change, must_be_said=can_be_said(document, change))
    if not mark:
        fix = text_fix(document, Fix("change it", (change,)))
        assert fix is None or isinstance(json.loads(edited(text, fix.edits)), dict)


@settings(deadline=None, max_examples=100)
@given(st.data(), values(), st.integers(0, 2**32))
def test_hjson_changes_where_a_fix_says_and_nowhere_else(data: st.DataObject, value: dict[str, Any], seed: int) -> None:
    document = read_text(write(Random(seed), value))
    if not document.problems:
        check(document, data.draw(changes_of(document.value)), must_be_said=False)


@settings(deadline=None, max_examples=100)
@given(st.data(), hjson_texts())
def test_hjson_of_any_kind_changes_where_a_fix_says_and_nowhere_else(data: st.DataObject, text: str) -> None:
    document = read_text(text)
    if not document.problems:
        check(document, data.draw(changes_of(document.value)), must_be_said=False)


@settings(deadline=None, max_examples=100)
@given(st.data(), values(), st.sampled_from((True, False, None)), st.booleans())
def test_yaml_changes_where_a_fix_says_and_nowhere_else(
    data: st.DataObject, value: dict[str, Any], flow: bool | None, commented: bool
) -> None:
    text = yaml.safe_dump(value, default_flow_style=flow, sort_keys=False)
    if commented and not flow:
        text = "".join(f"{line}  # note {n}\n" for n, line in enumerate(text.splitlines()))
    document = read_text(text, syntax=Syntax.YAML)
    if not document.problems:
        check(document, data.draw(changes_of(document.value)), must_be_said=False)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_yaml_with_aliases_changes_where_a_fix_says_and_nowhere_else(data: st.DataObject) -> None:
    document = read_text(YAML_BY_HAND, syntax=Syntax.YAML)
    assert not document.problems
    check(document, data.draw(changes_of(document.value)), must_be_said=False)


def test_hardly_any_change_of_an_ordinary_text_can_not_be_said() -> None:
    """The properties above hold for a fixer that never has a fix, too."""
    unsaid = []
    for text in (json.dumps(VALUE, indent=2), json.dumps(VALUE), HJSON, YAML):
        document = read_text(text, syntax=Syntax.YAML if text is YAML else Syntax.HJSON)
        for path, _ in walk(document.value):
            if path:
                new_key = SetValue((*path[:-1], "n"), 1)
                for change in (SetValue(path, 3), RemoveKey(path), RenameKey(path, "z"), new_key):
                    if text_fix(document, Fix("change it", (change,))) is None:
                        unsaid.append((document.syntax, change))
    assert unsaid == [(Syntax.YAML, SetValue(path, 3)) for path in (("b",), ("b", "d"))]  # blocks of several lines


VALUE = {"a": 1, "b": {"c": "2", "d": {"e": True, "f": None}}}
HJSON = "{\n  a: 1 # one\n  b: {\n    c: two // all of it\n    d: { e: true, f: null }\n  }\n}\n"
YAML = "a: 1 # one\nb:\n  c: '2'\n  d:\n    e: true\n    f: null\n"
