"""The settings file: which one holds, and what may stand in it."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

from ds_accum.errors import UsageError
from ds_accum.lint import settings
from ds_accum.lint.settings import Setting, SettingsFile, SettingsSearch


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a repository, the working directory, with a folder conf/deep."""
    root = tmp_path / "project"
    (root / "conf" / "deep").mkdir(parents=True)
    (root / ".git").mkdir()
    monkeypatch.chdir(root)
    return root


def found(path: str = "conf/deep/ds.json") -> SettingsFile | None:
    return SettingsSearch().above(Path(path))


def read(text: str, name: str = "ds-accum.toml") -> dict[str, object]:
    Path(name).write_text(text, encoding="utf-8")
    file = found()
    assert file is not None
    return {key: setting.value for key, setting in file.settings.items()}


def refused(text: str, name: str = "ds-accum.toml") -> UsageError:
    Path(name).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        found()
    return caught.value


# ------------------------------------------------------------------------------------------------------ which one holds


def test_the_nearest_file_above_the_linted_one_holds_alone(project: Path) -> None:
    assert found() is None
    (project / "ds-accum.toml").write_text("tp = 2\npp = 2\n", encoding="utf-8")
    (project / "conf" / "ds-accum.toml").write_text("tp = 4\n", encoding="utf-8")
    file = found()
    assert file is not None
    assert file.settings == {"tp": Setting(4, "conf/ds-accum.toml:1")}
    assert found("ds.json") is not None and found("ds.json") != file


@pytest.mark.parametrize("mark", ["folder", "file"])
def test_nothing_above_the_repository_is_looked_at(project: Path, mark: str) -> None:
    (project.parent / "ds-accum.toml").write_text("nonsense", encoding="utf-8")
    if mark == "file":  # a linked work tree
        (project / ".git").rmdir()
        (project / ".git").touch()
    assert found() is None
    with pytest.raises(UsageError):
        SettingsSearch().above(project.parent / "ds.json")


def test_in_one_folder_our_own_file_comes_before_those_of_others(project: Path) -> None:
    (project / "setup.cfg").write_text("[ds-accum]\ntp = 8\n", encoding="utf-8")
    assert read("[tool.ds-accum]\ntp = 4\n", "pyproject.toml") == {"tp": 4}
    assert read("tp = 2\n") == {"tp": 2}


def test_a_file_of_others_without_our_table_is_passed_by(project: Path) -> None:
    (project / "ds-accum.toml").write_text("tp = 2\n", encoding="utf-8")
    for text in ("", "[project]\ndependencies = ['ds-accum']\n", "[tool.ruff]\n"):
        (project / "conf" / "pyproject.toml").write_text(text, encoding="utf-8")
        (project / "conf" / "setup.cfg").write_text("[options]\ninstall_requires = ds-accum\n", encoding="utf-8")
        file = found()
        assert file is not None and file.name == "ds-accum.toml"


def test_a_broken_file_of_others_that_says_nothing_to_us_is_nobodys_business(project: Path) -> None:
    (project / "pyproject.toml").write_text("[[[", encoding="utf-8")
    (project / "setup.cfg").write_text("no section", encoding="utf-8")
    assert found() is None


def test_an_empty_table_holds_too(project: Path) -> None:
    (project / "ds-accum.toml").write_text("tp = 2\n", encoding="utf-8")
    (project / "conf" / "pyproject.toml").write_text("[tool.ds-accum]\n", encoding="utf-8")
    file = found()
    assert file is not None and file.settings == {}


def test_a_folder_of_the_name_and_a_byte_order_mark_are_no_obstacle(project: Path) -> None:
    (project / "ds-accum.toml").mkdir()
    assert read("\ufeff[tool.ds-accum]\ntp = 4\n", "pyproject.toml") == {"tp": 4}


def test_each_file_is_read_once(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "ds-accum.toml").write_text("tp = 2\n", encoding="utf-8")
    looked_at: list[Path] = []
    original = settings._settings_in
    monkeypatch.setattr(settings, "_settings_in", lambda folder: (looked_at.append(folder), original(folder))[1])
    search = SettingsSearch()
    for name in ("conf/deep/a.json", "conf/deep/b.json", "conf/a.json", "a.json"):
        assert search.above(Path(name)) is not None
    assert looked_at == [project / "conf" / "deep", project / "conf", project]


def test_no_parser_is_loaded_where_there_is_nothing_to_parse(project: Path) -> None:
    (project / "pyproject.toml").write_text("[project]\nname = 'x'\n", encoding="utf-8")
    (project / "setup.cfg").write_text("[metadata]\nname = x\n", encoding="utf-8")
    code = (
        "import sys; from pathlib import Path; from ds_accum.lint.settings import SettingsSearch\n"
        "assert SettingsSearch().above(Path('conf/ds.json')) is None\n"
        "sys.exit(bool({'tomllib', 'tomli', 'configparser', 'difflib'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_before_python_3_11_toml_is_read_with_tomli(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Tomli(types.ModuleType):
        TOMLDecodeError = ValueError
        loads = staticmethod(lambda _: {"tp": 16})

    monkeypatch.setitem(sys.modules, "tomli", Tomli("tomli"))
    monkeypatch.setattr(settings.sys, "version_info", (3, 10, 14))
    assert read("tp = 2\n") == {"tp": 16}


# ---------------------------------------------------------------------------------------------------- what may be in it

TOML = """
target-deepspeed = "0.18.5"
world-size = [64, 8]
tp = 2
pp = 1
cp = 1
sp = 1
ep = 4
framework = "hf"
client-optimizer = "yes"
client-scheduler = false
engine = "stock"
accelerator = "npu"
select = ["ALL"]
ignore = ["dsa4", "DSA101"]
fail-on = "warning"
exclude = ["old", "conf/*.hf.json"]
per-file-ignores = {"legacy/*.json" = ["DSA7"], "a:b.json" = []}
"""
CFG = """
[ds-accum]
target-deepspeed = 0.18.5
world-size = 8,64
tp = 2
pp = 1
cp = 1
sp = 1
ep = 4
framework = hf
client-optimizer = yes
client-scheduler: false
engine = stock
accelerator = npu
select = ALL
ignore = dsa4, DSA101
fail-on = warning
exclude =
    old
    conf/*.hf.json
per-file-ignores =
    legacy/*.json: DSA7
    a:b.json:
"""
VALUES = {
    "target-deepspeed": (0, 18, 5),
    "world-size": (8, 64),
    "tp": 2,
    "pp": 1,
    "cp": 1,
    "sp": 1,
    "ep": 4,
    "framework": "huggingface",
    "client-optimizer": True,
    "client-scheduler": False,
    "engine": "stock",
    "accelerator": "npu",
    "select": ("ALL",),
    "ignore": ("DSA4", "DSA101"),
    "fail-on": "warning",
    "exclude": ("old", "conf/*.hf.json"),
    "per-file-ignores": {"legacy/*.json": ("DSA7",), "a:b.json": ()},
}


def test_every_setting_can_be_written_in_every_file(project: Path) -> None:
    assert set(VALUES) == set(settings._READERS)
    assert read(CFG, "setup.cfg") == VALUES
    assert read(f"[tool.ds-accum]{TOML}", "pyproject.toml") == VALUES
    assert read(TOML) == VALUES


@pytest.mark.parametrize(
    ("value", "sizes"), [("8", (8,)), ('"8"', (8,)), ('"1-3,8"', (1, 2, 3, 8)), ("[2, 1]", (1, 2))]
)
def test_world_sizes_are_numbers_or_ranges(project: Path, value: str, sizes: tuple[int, ...]) -> None:
    assert read(f"world-size = {value}\n") == {"world-size": sizes}


@pytest.mark.parametrize(
    ("line", "sentence", "remedy"),
    [
        ("world_size = 8", 'there is no setting "world_size"', "did you mean world-size?"),
        ("quux = 8", 'there is no setting "quux"', "there are target-deepspeed, world-size, tp"),
        ("world-size = 0", "world-size can't be read: '0': a world has at least 1 rank", None),
        (
            "world-size = true",
            "world-size must be a number of ranks, several, or a range such as 8-16, not the bo",
            None,
        ),
        ("world-size = []", "world-size must be a number of ranks", None),
        ("tp = '2'", 'tp must be a number of at least 1, not the string "2"', None),
        ("tp = 0", "tp must be a number of at least 1, not the number 0", None),
        ("framework = 'torch'", "framework must be one of raw, huggingface, accelerate, lightning, gpt-neox, hf", None),
        ("engine = 'ds_accum'", 'not the string "ds_accum" (did you mean ds-accum?)', None),
        ("accelerator = 1", "accelerator must be one of cuda, cpu,", None),
        ("client-optimizer = 1", "client-optimizer must be yes or no, not the number 1", None),
        ("target-deepspeed = 0.18", 'target-deepspeed must be a release in quotes, such as "0.19.8", not the nu', None),
        ("target-deepspeed = 'new'", "target-deepspeed can't be read: 'new' is not a DeepSpeed version", None),
        ("select = 'ALL'", 'select must be a list of strings, not the string "ALL"', None),
        ("ignore = ['DSA1O1']", "'DSA1O1' is no code of a rule, and no code begins so", "did you mean DSA101?"),
        ("per-file-ignores = ['a']", "per-file-ignores must be a table of patterns", None),
        (
            "per-file-ignores = {'a' = 'DSA1'}",
            'per-file-ignores of "a" must be a list of strings, not the string "DSA1"',
            None,
        ),
        ("fail-on = 'warn'", "fail-on must be one of error, warning, info, never", None),
        ("exclude = [1]", "exclude must be a list of strings", None),
    ],
)
def test_a_wrong_setting_is_one_error_with_its_line(
    project: Path, line: str, sentence: str, remedy: str | None
) -> None:
    for name, table, number in (("pyproject.toml", "[project]\n[tool.ds-accum]\n", 4), ("ds-accum.toml", "", 2)):
        error = refused(f"{table}# a comment\n{line}\n", name)
        assert str(error).startswith(f"{name}:{number}: ") and sentence in str(error)
        assert remedy is None or (error.remedy or "").startswith(remedy)


def test_a_wrong_setting_of_an_ini_file_has_its_line_too(project: Path) -> None:
    error = refused("[metadata]\ntp = x\n[ds-accum]\ntp = two\n", "setup.cfg")
    assert str(error) == 'setup.cfg:4: tp must be a number of at least 1, not the string "two"'
    assert "setup.cfg:2: per-file-ignores must have lines" in str(
        refused("[ds-accum]\nper-file-ignores =\n  DSA1\n", "setup.cfg")
    )


def test_a_table_of_its_own_has_the_line_of_its_header(project: Path) -> None:
    error = refused('[tool.ds-accum]\n[tool."ds-accum".per-file-ignores]\n"a.json" = ["X"]\n', "pyproject.toml")
    assert str(error).startswith("pyproject.toml:2: 'X' is no code of a rule")


@pytest.mark.parametrize(
    ("text", "name", "sentence"),
    [
        ("tp = \n", "ds-accum.toml", "ds-accum.toml is no TOML: invalid value (at line 1, column 6)"),
        ("[tool]\nds-accum = 1\n", "pyproject.toml", "pyproject.toml: tool.ds-accum must be a table"),
        ("x = 1\n[ds-accum]\n", "setup.cfg", "setup.cfg can't be read: File contains no section headers"),
        ("[ds-accum]\ntp = 1\ntp = 2\n", "setup.cfg", "setup.cfg can't be read: While reading"),
    ],
)
def test_a_file_that_can_not_be_parsed_is_one_error(project: Path, text: str, name: str, sentence: str) -> None:
    assert str(refused(text, name)).startswith(sentence)


def test_bytes_that_are_no_text_are_one_error(project: Path) -> None:
    Path("ds-accum.toml").write_bytes(b"tp = '\xff'")
    with pytest.raises(UsageError, match="^ds-accum.toml is not UTF-8 text: invalid start byte"):
        found()


@pytest.mark.parametrize(
    ("name", "text", "sentence", "remedy"),
    [
        ("ds_accum.toml", "", "ds_accum.toml is read by nobody", "call it ds-accum.toml"),
        ("pyproject.toml", "[tool.ds_accum]\n", "pyproject.toml: [tool.ds_accum] is read by nobody", "[tool.ds-accum]"),
        ("pyproject.toml", "[ds-accum]\n", "pyproject.toml: [ds-accum] is read by nobody", "call it [tool.ds-accum]"),
        ("setup.cfg", "[ds_accum]\n", "setup.cfg: [ds_accum] is read by nobody", "call it [ds-accum]"),
        ("setup.cfg", "[tool:ds-accum]\n", "setup.cfg: [tool:ds-accum] is read by nobody", "call it [ds-accum]"),
    ],
)
def test_settings_under_a_name_that_is_not_ours_are_not_silently_without_effect(
    project: Path, name: str, text: str, sentence: str, remedy: str
) -> None:
    (project / name).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        SettingsSearch().above(project / "ds.json")
    assert sentence in str(caught.value) and remedy in str(caught.value.remedy)


def test_a_table_of_another_tool_that_only_names_our_package_is_passed_by(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.setuptools.package-data]\nds_accum = []\n", encoding="utf-8")
    assert SettingsSearch().above(project / "ds.json") is None
