"""Many fixes of one document: in passes, until none is left; and what happens to a fix that is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ds_accum.config.document import Document, read_bytes, read_text
from ds_accum.config.launch import Launch
from ds_accum.errors import FixError
from ds_accum.lint import lint_text
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Diagnostic, Finding, When
from ds_accum.lint.fix import Fix, RemoveKey, RenameKey, SetValue, TextEdit, TextFix
from ds_accum.lint.fixer import fix_document
from ds_accum.lint.linter import lint_document
from ds_accum.lint.rule import Rule
from ds_accum.lint.rules import RULES

WORLD = Launch(world_size=1, client_optimizer=False)


def rule(name: str, *fixes: Fix) -> Rule:
    """A rule that finds each fix's first change, as long as the config has its key."""

    def check(context: LintContext) -> Iterator[Finding]:
        for fix in fixes:
            if fix.changes[0].at[0] in context.values:
                yield Finding(at=fix.changes[0].at, message="this is wrong", fix=fix)

    return Rule(code=name, name=name, summary="", rationale="", when=When.LOAD, check=check, bad=(), good=())


def fixed_by(text: str, *rules: Rule, unsafe: bool = False) -> tuple[str, int]:
    def lint(document: Document) -> list[Diagnostic]:
        return lint_document(document, rules=rules)

    fixed = fix_document(read_text(text), lint, unsafe=unsafe)
    return fixed.document.text, fixed.count


def removal(key: str, *, is_safe: bool = True) -> Fix:
    return Fix(f"remove {key}", (RemoveKey((key,)),), is_safe)


def test_fixes_that_touch_each_other_take_several_passes() -> None:
    rules = rule("A", removal("b"), removal("c"), removal("a"))
    assert fixed_by('{"a": 1, "b": 2, "c": 3, "d": 4}', rules) == ('{"d": 4}', 3)


def test_two_fixes_of_one_value_are_one() -> None:
    rules = rule("A", removal("b")), rule("B", removal("b"))
    assert fixed_by('{"a": 1, "b": 2}', *rules) == ('{"a": 1}', 1)


def test_a_name_that_two_fixes_bring_is_brought_by_the_first() -> None:
    """The text has room for both; the config has not."""
    renames = Fix("rename a to c", (RenameKey(("a",), "c"),), is_safe=True)
    adds = Fix("set c to 2", (SetValue(("b",), 0), SetValue(("c",), 2)), is_safe=True)

    def check(context: LintContext) -> Iterator[Finding]:
        if "a" in context.values:
            yield Finding(at=("a",), message="it is called c", fix=renames)
        if context.values.get("c") != 2:
            yield Finding(at=("b",), message="c must be 2", fix=adds)

    both = Rule(code="A", name="a", summary="", rationale="", when=When.LOAD, check=check, bad=(), good=())
    assert fixed_by('{"a": 1, "x": {}, "b": 1}', both) == ('{"c": 2, "x": {}, "b": 0}', 2)


def test_only_safe_fixes_are_applied_unless_all_are_asked_for() -> None:
    rules = rule("A", removal("a"), removal("b", is_safe=False))
    assert fixed_by('{"a": 1, "b": 2}', rules) == ('{"b": 2}', 1)
    assert fixed_by('{"a": 1, "b": 2}', rules, unsafe=True) == ("{}", 2)


def test_a_fix_that_makes_another_finding_goes_on_to_that() -> None:
    first = Fix("move on", (RemoveKey(("a",)), SetValue(("b",), 1)), is_safe=True)
    assert fixed_by('{"a": 1}', rule("A", first), rule("B", removal("b"))) == ("{}", 2)


# --------------------------------------------------------------------------------------------------- wrong fixes


def lint_with(fix: TextFix) -> Diagnostic:
    document = read_text('{"a": 1, "b": 2}')
    found = lint_document(document, rules=[rule("A", removal("a"))])[0]
    return Diagnostic(**{name: getattr(found, name) for name in Diagnostic.__slots__ if name != "fix"}, fix=fix)


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(TextEdit(1, 9, "{"), id="makes the text unreadable"),
        pytest.param(TextEdit(0, 16, "{}"), id="changes another value"),
        pytest.param(TextEdit(1, 1, ""), id="changes nothing"),
    ],
)
def test_a_fix_that_changes_something_else_is_our_failure(edit: TextEdit) -> None:
    wrong = lint_with(TextFix("remove a", (edit,), True, (RemoveKey(("a",)),)))
    with pytest.raises(FixError, match="change more than they say: remove a"):
        fix_document(read_text('{"a": 1, "b": 2}'), lambda _: [wrong])


def test_a_fix_that_leaves_its_finding_is_our_failure() -> None:
    stubborn = rule("A", Fix("set a to 2", (SetValue(("a",), 2),), is_safe=True))
    with pytest.raises(FixError, match="leaves what it is to mend, A: set a to 2"):
        fixed_by('{"a": 1}', stubborn)


def test_fixes_that_undo_each_other_are_our_failure() -> None:
    there = Fix("rename it", (RemoveKey(("a",)), SetValue(("b",), 1)), is_safe=True)
    back = Fix("rename it back", (RemoveKey(("b",)), SetValue(("a",), 1)), is_safe=True)
    with pytest.raises(FixError, match="undo each other: rename it back"):
        fixed_by('{"a": 1}', rule("A", there), rule("B", back))


def test_a_finding_that_another_fix_brings_back_is_mended_in_the_next_pass() -> None:
    """Once b is there, a is wrong for another reason, and needs another value."""

    def check(context: LintContext) -> Iterator[Finding]:
        a, b = context.values["a"], context.values["b"]
        if a != (2 if b else 1):
            fix = Fix("set a", (SetValue(("a",), 2 if b else 1),), is_safe=True)
            yield Finding(at=("a",), message="this is wrong", fix=fix)
        if not b:
            yield Finding(at=("b",), message="so is this", fix=Fix("set b", (SetValue(("b",), True),), is_safe=True))

    both = Rule(code="A", name="a", summary="", rationale="", when=When.LOAD, check=check, bad=(), good=())
    assert fixed_by('{"a": 0, "b": false}', both) == ('{"a": 2, "b": true}', 3)


def test_a_finding_that_hides_another_at_its_place_is_followed_by_that() -> None:
    def check(context: LintContext) -> Iterator[Finding]:
        for name in ("a", "b"):
            if context.values[name]:
                fix = Fix(f"set {name} to 0", (SetValue((name,), 0),), is_safe=True)
                yield Finding(at=("both",), message=f"both is off, and {name} is on", fix=fix)
                return

    hiding = Rule(code="A", name="a", summary="", rationale="", when=When.LOAD, check=check, bad=(), good=())
    assert fixed_by('{"a": 1, "b": 1, "both": 0}', hiding) == ('{"a": 0, "b": 0, "both": 0}', 2)


# ------------------------------------------------------------------------------------------------------- launches

MISMATCH = '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2}'


def fixes(text: str, launches: Sequence[Launch]) -> list[str | None]:
    return [item.fix and item.fix.title for item in lint_text(text, launches=launches, rules=[RULES.by_code["DSA101"]])]


def worlds(*sizes: int) -> list[Launch]:
    return [Launch(world_size=size) for size in sizes]


def test_a_finding_has_a_fix_only_if_it_holds_at_every_world() -> None:
    assert fixes(MISMATCH, worlds(4, 8)) == ["remove train_batch_size"]
    assert fixes(MISMATCH, worlds(2, 4)) == [None]


def test_a_finding_has_a_fix_only_if_it_is_the_same_at_every_world() -> None:
    def check(context: LintContext) -> Iterator[Finding]:
        size = context.launch.world_size
        yield Finding(at=("a",), message="wrong", fix=Fix("set it", (SetValue(("a",), size),)))

    differs = Rule(code="A", name="a", summary="", rationale="", when=When.LOAD, check=check, bad=(), good=())
    for sizes, count in (((1,), 1), ((1, 1), 1), ((1, 2), 0)):
        found = lint_text('{"a": 0}', launches=worlds(*sizes), rules=[differs])
        assert sum(item.fix is not None for item in found) == count


def test_a_text_with_thousands_of_mistakes_has_fixes_for_some_of_them() -> None:
    keys = ", ".join(f'"overlap_com{n}": 1' for n in range(3000))
    found = lint_text('{"train_batch_size": 8, "zero_optimization": {' + keys + "}}")
    assert 0 < sum(item.fix is not None for item in found) < len(found)


# ---------------------------------------------------------------------------------------------------- real configs


def test_every_fix_of_a_real_config_is_what_it_says(corpus: Path) -> None:
    fixed = 0
    for path in sorted((corpus / "files").iterdir()):
        for size in (1, 8):
            launch = Launch(world_size=size, client_optimizer=False)
            before = read_bytes(path.read_bytes(), filename=path.name)

            def lint(document: Document, launch: Launch = launch) -> list[Diagnostic]:
                return lint_document(document, launches=[launch])

            # It raises where a text can't be read again, or holds other values than those that were asked for.
            after = fix_document(before, lint, unsafe=True)
            assert after.count > 0 or after.document.text == before.text
            assert fix_document(after.document, lint, unsafe=True).count == 0
            fixed += after.count > 0
    assert fixed > 50
