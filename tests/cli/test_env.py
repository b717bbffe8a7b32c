"""`ds-accum env`: enough for a bug report, and no secrets."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ds_accum as package
from ds_accum.cli.env import without_home


def test_versions_are_those_of_the_packages(ds_accum: Any) -> None:
    found = json.loads(ds_accum("env", "--format", "json").output)
    assert found["version"] == 1
    assert found["versions"]["ds-accum"] == package.__version__
    assert found["versions"]["click"] == importlib.metadata.version("click")
    assert found["versions"]["lightning"] is None or found["versions"]["lightning"]


def test_text_says_the_same_as_json(ds_accum: Any) -> None:
    finished = ds_accum("env")
    assert (finished.code, finished.errors) == (0, "")
    shown = " ".join(finished.output.split())
    for section, entries in json.loads(ds_accum("env", "--format", "json").output).items():
        if section != "version":
            assert f"{section}:" in shown
            for name, value in entries.items():
                assert f"{name} {'not installed' if value is None else value}" in shown


def test_only_what_launchers_say_is_shown_of_the_environment(ds_accum: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "64")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WANDB_API_KEY", "a-secret")
    monkeypatch.setenv("HF_TOKEN", "another-secret")
    finished = ds_accum("env")
    assert "WORLD_SIZE" in finished.output and "64" in finished.output
    assert "secret" not in finished.output


def test_the_home_directory_is_not_spelt_out(ds_accum: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    finished = ds_accum("env")
    assert f"~/{folder.name}" in finished.output
    assert str(folder) not in finished.output


def test_the_settings_file_that_holds_for_the_working_directory_is_named(ds_accum: Any, folder: Path) -> None:
    def named() -> Any:
        return json.loads(ds_accum("env", "--format", "json").output)["detected"]["settings file"]

    (folder / ".git").mkdir()
    assert named() == "none"
    (folder / "pyproject.toml").write_text("[tool.ds-accum]\ntp = 2\n", encoding="utf-8")
    assert named() == "pyproject.toml"
    (folder / "ds-accum.toml").write_text("\ntps = 2\n", encoding="utf-8")
    assert named() == 'ds-accum.toml:2: there is no setting "tps"'


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/home/ada/x", "~/x"), ("/home/ada", "~"), ("/home/adam/x", "/home/adam/x"), ("/", "/"), ("64", "64")],
)
def test_home_is_shortened_only_where_it_is_home(monkeypatch: pytest.MonkeyPatch, path: str, expected: str) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert without_home(path) == expected


def test_a_hostfile_is_counted_without_the_names_of_the_machines(tmp_path: Path) -> None:
    from ds_accum.cli.env import _slots

    path = tmp_path / "hostfile"
    assert _slots(path) is None
    path.write_text("secret-1 slots=8\nsecret-2 slots=8\n", encoding="utf-8")
    assert _slots(path) == f"{path}: 2 hosts, 16 slots"
    path.write_text("nonsense\n", encoding="utf-8")
    assert "expected HOST slots=N" in str(_slots(path))


def test_no_package_is_imported_to_ask_for_its_version(repository: Path) -> None:
    code = (
        "import sys\nfrom ds_accum.cli.main import cli\n"
        "try: cli(['env'], prog_name='ds-accum')\nexcept SystemExit: pass\n"
        "print(*{'torch', 'deepspeed', 'numpy', 'transformers', 'pydantic', 'pygls'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.strip()) == (0, "")
