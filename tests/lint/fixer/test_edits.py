"""One fix as edits: the text before and after, in every syntax and style that people write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ds_accum.config.document import Document, Syntax, read_text
from ds_accum.config.embedded import find_configs
from ds_accum.config.launch import Launch
from ds_accum.lint.fix import Change, Fix, MoveKey, RemoveKey, RenameKey, SetValue, TextEdit, TextFix
from ds_accum.lint.fixer import in_document, text_fix
from ds_accum.lint.fixer.pieces import Pieces, edited


def fixed(text: str, *changes: Change, syntax: Syntax = Syntax.HJSON) -> str | None:
    """The text after a fix; None where there is none."""
    fix = text_fix(read_text(text, syntax=syntax), Fix("mend it", changes))
    return None if fix is None else edited(text, fix.edits)


def set_(*path_and_value: Any) -> SetValue:
    return SetValue(path_and_value[:-1], path_and_value[-1])


def remove(*path: str) -> RemoveKey:
    return RemoveKey(path)


def rename(*path_and_name: str) -> RenameKey:
    return RenameKey(path_and_name[:-1], path_and_name[-1])


# ----------------------------------------------------------------------------------------------------- JSON and Hjson

INDENTED = '{\n  "a": 1,\n  "b": {\n    "c": 2\n  },\n  "d": 3\n}\n'

IN_BRACES: Mapping[str, tuple[str, tuple[Change, ...], str]] = {
    # a value in place of another
    "a number without its quotes": ('{"a": "10"}', (set_("a", 10),), '{"a": 10}'),
    "digits stay as they were": ('{"a": "5e8", "b": "1.0"}', (set_("a", 5e8), set_("b", 1)), '{"a": 5e8, "b": 1.0}'),
    "underscores go": ('{"a": "1_000"}', (set_("a", 1000),), '{"a": 1000}'),
    "in single quotes": ("{'a': 'adamw'}", (set_("a", "AdamW"),), "{'a': 'AdamW'}"),
    "without quotes": ("{a: adamw // x\n}", (set_("a", "AdamW"),), "{a: AdamW\n}"),
    "words that mean something get quotes": ("{\n  a: adamw\n}", (set_("a", "true"),), '{\n  a: "true"\n}'),
    "a string of several lines": ("{\n  a:\n    '''\n    x\n    '''\n}", (set_("a", 1),), "{\n  a:\n    1\n}"),
    "a number in front of a key needs a comma": (
        "{'a': '10' 'b': '3'}",
        (set_("a", 10),),
        "{'a': 10, 'b': '3'}",
    ),
    "a switch becomes a block": ('{"fp16": true}', (set_("fp16", {"enabled": True}),), '{"fp16": {"enabled": true}}'),
    "a word in place of a number": ("{\n  a: 1\n}", (set_("a", "fp16"),), '{\n  a: "fp16"\n}'),
    "a string in place of a boolean": ('{"a": true, "b": 1}', (set_("a", "x"),), '{"a": "x", "b": 1}'),
    "an item of a list": ('{"a": ["1", 2]}', (set_("a", 0, 1),), '{"a": [1, 2]}'),
    # a new key
    "on one line": ('{"a": 1, "b": 2}', (set_("c", True),), '{"a": 1, "b": 2, "c": true}'),
    "on one line with blanks": ('{ "a" : 1 }', (set_("c", None),), '{ "a" : 1, "c" : null }'),
    "without any blank": ('{"a":1}', (set_("b", {"c": "x"}),), '{"a":1,"b":{"c":"x"}}'),
    "on lines": (INDENTED, (set_("e", 4),), INDENTED.replace("3\n", '3,\n  "e": 4\n')),
    "in an inner block": (INDENTED, (set_("b", "e", 4),), INDENTED.replace("2\n", '2,\n    "e": 4\n')),
    "with its parents": (
        INDENTED,
        (set_("e", "f", "g", 4),),
        INDENTED.replace("3\n", '3,\n  "e": {\n    "f": {\n      "g": 4\n    }\n  }\n'),
    ),
    "with its parents, on one line": (
        '{\n  "a": {"b": 1}\n}',
        (set_("e", "f", 4),),
        '{\n  "a": {"b": 1},\n  "e": {"f": 4}\n}',
    ),
    "into nothing": ("{}", (set_("a", 1),), '{"a": 1}'),
    "into blanks": ("{ }", (set_("a", 1),), '{"a": 1}'),
    "into an empty block": ('{\n\t"a": {\n\t}\n}', (set_("a", "b", 1),), '{\n\t"a": {\n\t\t"b": 1\n\t}\n}'),
    "into a comment": ("{\n  # nothing yet\n}", (set_("a", 1),), '{\n  # nothing yet\n  "a": 1\n}'),
    "into a comment on one line": ("{ /* nothing */ }", (set_("a", 1),), '{ /* nothing */ "a": 1 }'),
    "behind a comment": (
        '{\n  "a": 1 // one\n  // end\n}',
        (set_("b", 2),),
        '{\n  "a": 1, // one\n  "b": 2\n  // end\n}',
    ),
    "behind a comment of several lines": (
        '{\n  "a": 1 /* one\n  and more */\n}',
        (set_("b", 2),),
        '{\n  "a": 1, /* one\n  and more */\n  "b": 2\n}',
    ),
    "with the last comma": ('{\n  "a": 1,\n}', (set_("b", 2),), '{\n  "a": 1,\n  "b": 2,\n}'),
    "with the last comma on one line": ('{"a": 1,}', (set_("b", 2),), '{"a": 1, "b": 2,}'),
    "with the comma in front": ('{ "a": 1\n, "b": 2\n}', (set_("c", 3),), '{ "a": 1\n, "b": 2\n, "c": 3\n}'),
    "without commas": ("{\n  a: 1\n  b: 2\n}", (set_("c", 3),), "{\n  a: 1\n  b: 2\n  c: 3\n}"),
    "without commas because of a string": (
        "{\n  a: 1,\n  b: two\n}",
        (set_("c", "d", 3),),
        "{\n  a: 1,\n  b: two\n  c: {d: 3}\n}",
    ),
    "as the blocks around do it": (
        "{\n  a: {\n    b: 1\n  }\n}",
        (set_("a", "c", 3),),
        "{\n  a: {\n    b: 1\n    c: 3\n  }\n}",
    ),
    "without braces": ("a: 1\nb: 2", (set_("c", 3),), "a: 1\nb: 2\nc: 3"),
    "without braces and with an end": ("a: 1\nb: 2 # two\n\n", (set_("c", 3),), "a: 1\nb: 2 # two\nc: 3\n\n"),
    "in single quotes as its neighbours": ("{'a': 1}", (set_("b", 2),), "{'a': 1, 'b': 2}"),
    "with \\r\\n": ('{\r\n  "a": 1\r\n}\r\n', (set_("b", 2),), '{\r\n  "a": 1,\r\n  "b": 2\r\n}\r\n'),
    "with a byte order mark": ('\ufeff{"a": 1}', (set_("b", 2),), '\ufeff{"a": 1, "b": 2}'),
    "before the bracket": ('{\n  "a": 1 }', (set_("b", 2),), '{\n  "a": 1,\n  "b": 2 }'),
    # a key less
    "the first": ('{"a": 1, "b": 2, "c": 3}', (remove("a"),), '{"b": 2, "c": 3}'),
    "one in the middle": ('{"a": 1, "b": 2, "c": 3}', (remove("b"),), '{"a": 1, "c": 3}'),
    "the last": ('{ "a": 1, "b": 2 }', (remove("b"),), '{ "a": 1 }'),
    "the only one": ('{"x": { "a": 1 }}', (remove("x", "a"),), '{"x": {}}'),
    "all of them": ('{"a": 1, "b": 2}', (remove("a"), remove("b")), "{}"),
    "a line": (INDENTED, (remove("a"),), INDENTED.replace('  "a": 1,\n', "")),
    "a block": (INDENTED, (remove("b"),), '{\n  "a": 1,\n  "d": 3\n}\n'),
    "the last line": (INDENTED, (remove("d"),), '{\n  "a": 1,\n  "b": {\n    "c": 2\n  }\n}\n'),
    "all of a block": (INDENTED, (remove("b", "c"),), '{\n  "a": 1,\n  "b": {},\n  "d": 3\n}\n'),
    "a comment stays": (
        '{\n  "a": 1, // one\n  "b": 2 // two\n}',
        (remove("b"),),
        '{\n  "a": 1 // one\n  // two\n}',
    ),
    "a comment before stays": ('{ "a": 1, /* x */ "b": 2 }', (remove("b"),), '{ "a": 1 /* x */ }'),
    "the last comma stays": ('{\n  "a": 1,\n  "b": 2,\n}', (remove("b"),), '{\n  "a": 1,\n}'),
    "the comma in front goes": ('{ "a": 1\n, "b": 2\n, "c": 3\n}', (remove("b"),), '{ "a": 1\n, "c": 3\n}'),
    "the first of a line": ('{\n  "a": 1, "b": 2,\n  "c": 3\n}', (remove("a"),), '{\n  "b": 2,\n  "c": 3\n}'),
    "the last of a line": ('{\n  "a": 1, "b": 2,\n  "c": 3\n}', (remove("b"),), '{\n  "a": 1,\n  "c": 3\n}'),
    "without commas, a line": ("{\n  a: 1\n  b: x y\n  c: 2\n}", (remove("b"),), "{\n  a: 1\n  c: 2\n}"),
    "without braces, the last": ("a: 1\nb: 2", (remove("b"),), "a: 1"),
    "without braces, the first": ("a: 1\nb: 2\n", (remove("a"),), "b: 2\n"),
    "with \\r\\n, a line": ('{\r\n  "a": 1,\r\n  "b": 2\r\n}\r\n', (remove("b"),), '{\r\n  "a": 1\r\n}\r\n'),
    # another name
    "in quotes": ('{"a": 1}', (rename("a", "b"),), '{"b": 1}'),
    "in single quotes, a name": ("{'a': 1}", (rename("a", "b"),), "{'b': 1}"),
    "without quotes, a name": ("{a: 1}", (rename("a", "b"),), "{b: 1}"),
    "without quotes, a name that needs them": ("{a: 1}", (rename("a", "b c"),), '{"b c": 1}'),
    # another place
    "up": (
        '{\n  "a": {"b": 1, "c": 1e0}, # x\n  "d": 2\n}',
        (MoveKey(("a", "c"), ("e",)),),
        '{\n  "a": {"b": 1}, # x\n  "d": 2,\n  "e": 1e0\n}',
    ),
    "down": ('{"a": {"b": 1}, "c": "x"}', (MoveKey(("c",), ("a", "c")),), '{"a": {"b": 1, "c": "x"}}'),
    "several changes": (
        INDENTED,
        (remove("d"), set_("b", "c", "2"), rename("a", "z"), set_("y", [1, 2])),
        '{\n  "z": 1,\n  "b": {\n    "c": "2"\n  },\n  "y": [1, 2]\n}\n',
    ),
}


@pytest.mark.parametrize("name", IN_BRACES)
def test_a_fix_changes_what_it_names_in_json_and_hjson(name: str) -> None:
    before, changes, after = IN_BRACES[name]
    assert fixed(before, *changes) == after


# -------------------------------------------------------------------------------------------------------------- YAML

BLOCKS = "a: 1\nb:\n  c: 2 # two\n  d: x\n# end\n"

IN_YAML: Mapping[str, tuple[str, tuple[Change, ...], str]] = {
    "a value": (BLOCKS, (set_("b", "c", 3),), BLOCKS.replace("2 #", "3 #")),
    "a value in quotes": ("a: '1'\nb: \"2\"\n", (set_("a", 1), set_("b", "on")), 'a: 1\nb: "on"\n'),
    "a number that YAML would take for a string": ("a: '5e8'\nb: 1\n", (set_("b", 1e-5),), "a: '5e8'\nb: 1.0e-05\n"),
    "digits as YAML wants them": ("a: '5.0e+8'\n", (set_("a", 5e8),), "a: 5.0e+8\n"),
    "a value where there is none": ("a:\nb: 1\n", (set_("a", 2),), "a: 2\nb: 1\n"),
    "a word that YAML would not take for a string": (BLOCKS, (set_("b", "d", "no"),), BLOCKS.replace("x", '"no"')),
    "a key": (BLOCKS, (set_("b", "e", "x"),), BLOCKS.replace("d: x\n", "d: x\n  e: x\n")),
    "a key at the root": (BLOCKS, (set_("e", True),), BLOCKS.replace("d: x\n", "d: x\ne: true\n")),
    "a key with its parents": (BLOCKS, (set_("e", "f", 1),), BLOCKS.replace("d: x\n", "d: x\ne:\n  f: 1\n")),
    "a key behind a comment": ("a: 1 # one", (set_("b", 2),), "a: 1 # one\nb: 2"),
    "a key in a list of blocks": ("a:\n- b: 1\n- b: 2\n", (set_("a", 0, "c", 1),), "a:\n- b: 1\n  c: 1\n- b: 2\n"),
    "a key less": (BLOCKS, (remove("b", "d"),), BLOCKS.replace("  d: x\n", "")),
    "a block less": (BLOCKS, (remove("b"),), "a: 1\n# end\n"),
    "a key less, and its comment": (BLOCKS, (remove("b", "c"),), BLOCKS.replace("c: 2 ", "")),
    "the last line": ("a: 1\nb: 2", (remove("b"),), "a: 1"),
    "another name": (BLOCKS, (rename("b", "e"),), BLOCKS.replace("b:", "e:")),
    "flow style": (
        "a: {b: 1, 'c': 2}\n",
        (set_("a", "d", 0.5), remove("a", "b")),
        "a: {'c': 2, 'd': 0.5}\n",
    ),
    "flow style on lines": ("{\n  a: 1,\n  b: 2 # two\n}", (remove("a"), set_("c", 3)), "{\n  b: 2, # two\n  c: 3\n}"),
    "json": ('{"a": 1, "b": {"c": 1,}}', (set_("b", "d", 1),), '{"a": 1, "b": {"c": 1, "d": 1,}}'),
    "one moves": ("a:\n  b: 1.0\n  c: 2\n", (MoveKey(("a", "b"), ("d",)),), "a:\n  c: 2\nd: 1.0\n"),
    "with \\r\\n": ("a: 1\r\nb: 2\r\n", (set_("c", 3), remove("a")), "b: 2\r\nc: 3\r\n"),
}


@pytest.mark.parametrize("name", IN_YAML)
def test_a_fix_changes_what_it_names_in_yaml(name: str) -> None:
    before, changes, after = IN_YAML[name]
    assert fixed(before, *changes, syntax=Syntax.YAML) == after


# ---------------------------------------------------------------------------------------------- what can't be said so


@pytest.mark.parametrize(
    ("text", "change"),
    [
        pytest.param("a: &x 1\nb: *x\n", set_("a", 2), id="an anchor"),
        pytest.param("a: &x 1\nb: *x\n", set_("b", 2), id="an alias"),
        pytest.param("a: &x 1\nb: *x\n", remove("a"), id="what an alias repeats"),
        pytest.param("a: &x {y: 1}\nb: *x\n", set_("b", "y", 2), id="below an alias"),
        pytest.param("a: &x {y: 1}\nb: *x\n", set_("a", "y", 2), id="below an anchor"),
        pytest.param("a: &x {y: 1}\nb: {<<: *x, z: 1}\n", set_("b", "y", 2), id="a merged member"),
        pytest.param("a: &x\n  y: 1\nb:\n  <<: *x\n  z: 1\n", remove("b", "z"), id="beside a merged member"),
        pytest.param("a: !!str 1\n", set_("a", 2), id="a tag"),
        pytest.param("a: |\n  x\n", set_("a", 2), id="a text of several lines"),
        pytest.param("a:\n  b: 1\n", remove("a", "b"), id="all of a block"),
        pytest.param("- a: 1\n", remove("a"), id="no object"),
        pytest.param("a:\n- b: 1\n  c: 2\n", RemoveKey(("a", 0, "b")), id="the line of a list's item"),
        pytest.param("a: [b\n", set_("a", 2), id="a mistake"),
        pytest.param("a: 1\na: 2\n", set_("a", 3), id="a key twice"),
    ],
)
def test_what_would_change_more_than_one_thing_in_yaml_is_no_fix(text: str, change: Change) -> None:
    assert fixed(text, change, syntax=Syntax.YAML) is None


@pytest.mark.parametrize(
    ("text", "change"),
    [
        pytest.param('{"a": 1', remove("a"), id="a mistake"),
        pytest.param('{"a": 1, "a": 2}', remove("a"), id="a key twice"),
        pytest.param('{"a": 1}', remove("b"), id="nothing to remove"),
        pytest.param('{"a": 1}', rename("b", "c"), id="nothing to rename"),
        pytest.param('{"a": 1, "b": 2}', rename("a", "b"), id="a name that is taken"),
        pytest.param('{"a": 1, "b": 2}', MoveKey(("a",), ("b",)), id="a place that is taken"),
        pytest.param('{"a": 1, "b": 2}', MoveKey(("a",), ("b", "c")), id="a place below a number"),
        pytest.param('{"a": {"b": 1}}', MoveKey(("a", "b"), ("c", "d")), id="a place without a parent"),
        pytest.param('{"a": {\n"b": 1\n}}', MoveKey(("a",), ("c",)), id="a block to move"),
        pytest.param('{"a": 1}', set_("a", "b", 2), id="a parent that is a number"),
        pytest.param('{"a": [1]}', set_("a", 1, 2), id="an item that is not there"),
        pytest.param("", set_("a", 1), id="nothing at all"),
        pytest.param("[1]", set_(0, 2), id="no object"),
        pytest.param('{"a": 1}', SetValue((), {}), id="the root"),
    ],
)
def test_what_the_text_can_not_say_is_no_fix(text: str, change: Change) -> None:
    assert fixed(text, change) is None


def test_a_fix_of_which_one_part_fails_is_none() -> None:
    assert fixed('{"a": 1}', set_("b", 2), remove("c")) is None


def test_strict_json_stays_strict_json() -> None:
    assert fixed('{"a": "x"}', set_("a", "y")) == '{"a": "y"}'
    assert fixed("{'a': 'x'}", set_("a", "y"), syntax=Syntax.JSON) is None


def test_a_text_fix_carries_what_it_must_come_to() -> None:
    changes = (set_("a", 10),)
    fix = text_fix(read_text('{"a": "10"}'), Fix("write it", changes, is_safe=True))
    assert fix == TextFix("write it", (TextEdit(6, 10, "10"),), True, changes)


# -------------------------------------------------------------------------------------------------- inside other files

ACCELERATE = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: '3'\n  gradient_clipping: 1.0\n"
GPT_NEOX = '{\n  "pipe-parallel-size": 1,\n  "train-batch-size": "8",\n  "fp16": {"fp16": true, "enabled": true}\n}\n'


def embedded(text: str, change: Change, framework: Any = None) -> str | None:
    """A text after a change of the config in it."""
    document: Document = read_text(text, filename="a.yaml", syntax=Syntax.YAML)
    (config,) = find_configs(document, Launch(framework=framework))
    fix = in_document(Fix("mend it", (change,)), config)
    found = None if fix is None else text_fix(document, fix)
    return None if found is None else edited(text, found.edits)


def test_accelerates_own_keys_are_fixed_where_they_stand() -> None:
    assert embedded(ACCELERATE, set_("zero_optimization", "stage", 3)) == ACCELERATE.replace("'3'", "3")
    assert embedded(ACCELERATE, remove("gradient_clipping")) == ACCELERATE.replace("  gradient_clipping: 1.0\n", "")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(set_("zero_optimization", "offload_param", {}), id="a key that Accelerate does not know"),
        pytest.param(rename("gradient_clipping", "clip"), id="a key under another name"),
        pytest.param(MoveKey(("gradient_clipping",), ("clip",)), id="a key at another place"),
        pytest.param(set_("train_batch_size", 8), id="a value that Accelerate fills in"),
    ],
)
def test_what_accelerate_has_no_key_for_is_no_fix(change: Change) -> None:
    assert embedded(ACCELERATE, change) is None


def test_gpt_neox_keys_are_fixed_as_they_are_spelt() -> None:
    assert embedded(GPT_NEOX, set_("train_batch_size", 8)) == GPT_NEOX.replace('"8"', "8")
    assert embedded(GPT_NEOX, remove("fp16", "fp16")) == GPT_NEOX.replace('"fp16": true, ', "")
    assert embedded(GPT_NEOX, rename("train_batch_size", "batch")) is None


def test_what_hugging_face_fills_in_is_left_alone() -> None:
    text = '{"train_batch_size": "auto", "fp16": {"enabled": "auto"}}'
    assert embedded(text, set_("train_batch_size", 8), "huggingface") is None
    assert embedded(text, set_("gradient_clipping", 1.0), "huggingface") == text[:-1] + ', "gradient_clipping": 1.0}'


# --------------------------------------------------------------------------------------------------- rounds of edits


def test_edits_of_edits_are_edits_of_the_first_text() -> None:
    pieces = Pieces("abcdef")
    pieces.apply([TextEdit(1, 2, "XY"), TextEdit(4, 4, "-")])
    assert pieces.text == "aXYcd-ef"
    pieces.apply([TextEdit(2, 4, ""), TextEdit(6, 8, "Z")])
    assert pieces.text == "aXd-Z"
    assert pieces.edits() == (TextEdit(1, 3, "X"), TextEdit(4, 6, "-Z"))
    assert edited("abcdef", pieces.edits()) == pieces.text
