"""What the linter says, in the protocol's own types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types

from ds_accum.config.document import Syntax
from ds_accum.config.launch import Launch
from ds_accum.errors import UsageError
from ds_accum.lint.fix import TextEdit, TextFix
from ds_accum.lint.in_force import CommandLine
from ds_accum.lsp.answers import FIX_ALL, code_actions, hover, protocol_diagnostic
from ds_accum.lsp.checking import Checked, check, syntax_of
from ds_accum.lsp.positions import Places

URI = "file:///ds_config.json"
LAUNCH = Launch(world_size=8)
TEXT = """{
  "train_batch_size": 100, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
  "zero_optimization": {"stage": 2, "overlap_com": true}
}
"""


def checked(text: str = TEXT, *, launches: Sequence[Launch] = (LAUNCH,), **more: Any) -> Checked:
    told = CommandLine(launches=tuple(launches), version_source="installed", given={"world-size": "worldSize"})
    return check(text, filename="ds_config.json", syntax=Syntax.HJSON, told=told, **more)


# ----------------------------------------------------------------------------------------------------- what is checked


@pytest.mark.parametrize(
    ("filename", "language", "syntax"),
    [
        ("ds_config.json", "json", Syntax.HJSON),
        ("ds_config.json", "jsonc", Syntax.HJSON),
        ("/conf/accelerate.YML", "yaml", Syntax.YAML),
        ("untitled:Untitled-1", "json", Syntax.HJSON),
        ("untitled:Untitled-1", "yaml", Syntax.YAML),
        ("train.py", "python", None),
        ("README", None, None),
    ],
)
def test_a_text_is_read_by_its_name_or_else_by_its_language(
    filename: str, language: str | None, syntax: Syntax | None
) -> None:
    assert syntax_of(filename, language) is syntax


@pytest.mark.parametrize("text", ["", "{}", '{"name": "a-package", "scripts": {}}', "[1, 2]", '{"train_batch'])
def test_a_text_that_holds_no_config_has_no_diagnostics(text: str) -> None:
    found = checked(text)
    assert (found.is_config, list(found.diagnostics)) == (False, [])


def test_half_a_config_is_one_while_it_is_typed() -> None:
    broken = '[{\n  "train_batch_size": 100,\n'
    assert not checked(broken).is_config
    found = checked(broken, was_config=True)
    assert found.is_config
    assert "DSA001" in [item.code for item in found.diagnostics]


def test_a_config_that_became_something_else_is_left_alone() -> None:
    assert not checked('{"name": "a-package"}', was_config=True).is_config


# ------------------------------------------------------------------------------------------------- what holds for a file

SETTINGS = """world-size = 3
target-deepspeed = "0.18.5"
ignore = ["DSA7"]
exclude = ["generated"]
"""


def in_folder(folder: Path, name: str, text: str = TEXT, **given: str) -> Checked:
    (folder / "ds-accum.toml").write_text(SETTINGS, encoding="utf-8")
    told = CommandLine(launches=(LAUNCH if given else Launch(),), version_source="installed", given=given)
    return check(text, filename=str(folder / name), path=folder / name, syntax=Syntax.HJSON, told=told)


def test_the_settings_file_above_the_file_holds_where_the_client_says_nothing(tmp_path: Path) -> None:
    found = in_folder(tmp_path, "ds.json")
    assert list(found.launches) == [Launch(world_size=3, deepspeed_version=(0, 18, 5))]
    assert [item.code for item in found.diagnostics] == ["DSA102"]
    found = in_folder(tmp_path, "ds.json", **{"world-size": "worldSize"})
    assert list(found.launches) == [Launch(world_size=8, deepspeed_version=(0, 18, 5))]


def test_what_the_file_suppresses_is_not_shown(tmp_path: Path) -> None:
    suppressed = TEXT.replace("{", '{\n  "ds_accum": {"lint": {"ignore": {"DSA102": "a test"}}},', 1)
    assert list(in_folder(tmp_path, "ds.json", suppressed).diagnostics) == []


def test_what_the_settings_file_excludes_is_left_alone(tmp_path: Path) -> None:
    assert not in_folder(tmp_path, "generated/ds.json").is_config


def test_a_settings_file_is_read_anew_and_a_wrong_one_is_said(tmp_path: Path) -> None:
    assert in_folder(tmp_path, "ds.json").is_config
    (tmp_path / "ds-accum.toml").write_text("world = 3\n", encoding="utf-8")
    told = CommandLine(launches=(LAUNCH,), version_source="installed")
    with pytest.raises(UsageError, match='there is no setting "world"'):
        check(TEXT, filename=str(tmp_path / "ds.json"), path=tmp_path / "ds.json", syntax=Syntax.HJSON, told=told)


# --------------------------------------------------------------------------------------------------------- diagnostics


def test_a_diagnostic_has_the_code_the_fact_the_remedy_and_the_place() -> None:
    found = checked()
    first = protocol_diagnostic(found.diagnostics[0], Places(TEXT))
    assert (first.code, first.source, first.severity) == ("DSA102", "ds-accum", types.DiagnosticSeverity.Error)
    fact, remedy = first.message.split("\n")
    assert fact.startswith("train_batch_size 100 (line 2)")
    assert "96 or 104" in remedy
    assert first.range == types.Range(types.Position(1, 22), types.Position(1, 25))


def test_what_holds_at_some_worlds_only_says_at_which() -> None:
    found = checked(launches=(Launch(world_size=4), LAUNCH))
    (item,) = (item for item in found.diagnostics if item.code == "DSA102")
    assert "(at world size 8)" in protocol_diagnostic(item, Places(TEXT)).message


# --------------------------------------------------------------------------------------------------------------- hover


def hovered(line: int, character: int, text: str = TEXT) -> str | None:
    answer = hover(checked(text), Places(text), types.Position(line, character))
    if answer is None:
        return None
    assert isinstance(answer.contents, types.MarkupContent)
    assert answer.contents.kind is types.MarkupKind.Markdown
    return answer.contents.value


def test_hovering_over_a_finding_says_why_it_matters() -> None:
    said = hovered(1, 23)
    assert said is not None
    assert said.startswith("**DSA102 indivisible-batch-size** (error): train_batch_size can't be dealt evenly")
    assert "floor division" in said


def test_hovering_over_a_setting_says_what_it_does() -> None:
    said = hovered(2, 28)
    assert said is not None
    assert said.startswith("**stage**\n\n0: off; 1: optimizer states are sharded")


@pytest.mark.parametrize(("line", "character"), [(0, 0), (3, 1), (2, 22), (99, 0)])
def test_hovering_over_nothing_says_nothing(line: int, character: int) -> None:
    assert hovered(line, character) is None


def test_hovering_over_what_is_no_setting_says_nothing() -> None:
    text = '{"train_batch_size": 8, "_my_own": {"x": [{"stage": 2}]}, "optimizer": {"params": {"lr": 1}}}'
    for word in ("_my_own", '"x"', "stage", '"lr"'):
        assert hovered(0, text.index(word) + 1, text) is None


def test_hovering_in_a_file_that_is_no_config_says_nothing() -> None:
    assert hovered(0, 3, '{"stage": 2}') is None


# -------------------------------------------------------------------------------------------------------- code actions


def with_fixes(*fixes: TextFix | None) -> Checked:
    found = checked()
    assert len(fixes) == len(found.diagnostics)
    return replace(
        found, diagnostics=[replace(item, fix=fix) for item, fix in zip(found.diagnostics, fixes, strict=True)]
    )


def actions(
    found: Checked,
    start: tuple[int, int] = (0, 0),
    end: tuple[int, int] = (99, 0),
    *,
    only: list[types.CodeActionKind | str] | None = None,
    with_versions: bool = False,
) -> list[types.CodeAction]:
    params = types.CodeActionParams(
        text_document=types.TextDocumentIdentifier(uri=URI),
        range=types.Range(types.Position(*start), types.Position(*end)),
        context=types.CodeActionContext(diagnostics=[], only=only),
    )
    return code_actions(found, Places(TEXT), params, version=3, with_versions=with_versions)


BATCH = TextFix(title="set train_batch_size to 96", edits=(TextEdit(24, 27, "96"),), is_safe=False)
RENAME = TextFix(
    title="rename the key",
    edits=(TextEdit(TEXT.index('"overlap_com"'), TEXT.index('"overlap_com"') + 13, '"overlap_comm"'),),
    is_safe=True,
)


def test_a_fix_is_a_quick_fix_of_its_diagnostic() -> None:
    quick, everything = actions(with_fixes(None, RENAME))
    assert (quick.title, quick.kind, quick.is_preferred) == (
        "DSA701: rename the key",
        types.CodeActionKind.QuickFix,
        True,
    )
    assert [item.code for item in quick.diagnostics or ()] == ["DSA701"]
    assert quick.edit is not None and quick.edit.changes is not None
    (change,) = quick.edit.changes[URI]
    assert change.new_text == '"overlap_comm"'
    assert change.range == types.Range(types.Position(2, 36), types.Position(2, 49))
    assert everything.kind == FIX_ALL


def test_a_fix_that_changes_the_training_says_so_and_is_never_applied_with_all() -> None:
    (only_quick,) = actions(with_fixes(BATCH, None))
    assert only_quick.title == "DSA102: set train_batch_size to 96 (changes the training)"
    assert only_quick.is_preferred is False


def test_only_the_fixes_in_the_range_are_offered() -> None:
    found = with_fixes(BATCH, RENAME)
    titles = [item.title for item in actions(found, (1, 22), (1, 22))]
    assert titles == ["DSA102: set train_batch_size to 96 (changes the training)", "ds-accum: apply all safe fixes"]


@pytest.mark.parametrize(
    ("only", "kinds"),
    [
        ([types.CodeActionKind.QuickFix], ["quickfix"]),
        ([types.CodeActionKind.SourceFixAll], [FIX_ALL]),
        ([FIX_ALL], [FIX_ALL]),
        ([types.CodeActionKind.Source], [FIX_ALL]),
        ([types.CodeActionKind.Refactor], []),
        ([types.CodeActionKind.Empty], ["quickfix", FIX_ALL]),
        ([], []),
    ],
)
def test_a_client_that_asks_for_some_kinds_gets_those(only: list[types.CodeActionKind | str], kinds: list[str]) -> None:
    assert [item.kind for item in actions(with_fixes(None, RENAME), only=only)] == kinds


def test_an_edit_is_for_the_version_that_was_seen_where_the_client_can_tell() -> None:
    quick, _ = actions(with_fixes(None, RENAME), with_versions=True)
    assert quick.edit is not None and quick.edit.document_changes is not None
    (change,) = quick.edit.document_changes
    assert isinstance(change, types.TextDocumentEdit)
    assert (change.text_document.uri, change.text_document.version) == (URI, 3)


def test_of_two_fixes_that_overlap_only_the_first_is_applied_with_all() -> None:
    again = replace_title(RENAME, "another way")
    _, _, everything = actions(with_fixes(again, RENAME))
    assert everything.edit is not None and everything.edit.changes is not None
    assert len(everything.edit.changes[URI]) == 1


def replace_title(fix: TextFix, title: str) -> TextFix:
    return fix._replace(title=title)
