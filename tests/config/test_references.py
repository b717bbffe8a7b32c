"""The file that an Accelerate YAML names is looked for in the project, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from ds_accum.config.document import Syntax, read_text
from ds_accum.config.references import Reference, find_reference, project_root


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a folder train/conf, and a file beside the project."""
    root = tmp_path / "project"
    (root / "train" / "conf").mkdir(parents=True)
    (root / "pyproject.toml").touch()
    (tmp_path / "outside.json").touch()
    return root


def reference(name: str, path: Path) -> Reference | None:
    text = f"distributed_type: DEEPSPEED\ndeepspeed_config: {{deepspeed_config_file: {name!r}}}\n"
    return find_reference(read_text(text, syntax=Syntax.YAML), path)


@pytest.mark.parametrize("place", ["train/conf", "train", "."])
def test_the_file_is_found_beside_the_yaml_and_above_it_up_to_the_root(project: Path, place: str) -> None:
    (project / place / "ds.json").touch()
    found = reference("ds.json", project / "train" / "conf" / "a.yaml")
    assert found == Reference(name="ds.json", path=project / place / "ds.json")


def test_the_nearest_file_wins(project: Path) -> None:
    for place in ("train/conf", "."):
        (project / place / "ds.json").touch()
    found = reference("ds.json", project / "train" / "conf" / "a.yaml")
    assert found is not None and found.path == project / "train" / "conf" / "ds.json"


def test_a_path_from_the_root_is_what_accelerate_sees_there(project: Path) -> None:
    (project / "train" / "ds.json").touch()
    found = reference("train/ds.json", project / "train" / "conf" / "a.yaml")
    assert found is not None and found.path == project / "train" / "ds.json"


def test_an_absolute_path_inside_the_project_is_followed(project: Path) -> None:
    (project / "ds.json").touch()
    found = reference(str(project / "ds.json"), project / "train" / "a.yaml")
    assert found is not None and found.path == project / "ds.json"


def test_a_file_that_is_nowhere_has_no_path(project: Path) -> None:
    (project / "folder.json").mkdir()
    for name in ("ds.json", "folder.json", "x" * 5000):
        assert reference(name, project / "train" / "a.yaml") == Reference(name=name)


def test_whatever_leads_outside_the_project_is_not_looked_at(project: Path) -> None:
    outside = project.parent / "outside.json"
    (project / "link.json").symlink_to(outside)
    (project / "self.json").symlink_to("self.json")
    for name in ("../outside.json", str(outside), "/etc/hostname"):
        assert reference(name, project / "a.yaml") == Reference(name=name, is_outside=True)
    assert reference("link.json", project / "a.yaml") == Reference(name="link.json", is_outside=True)
    found = reference("self.json", project / "a.yaml")
    assert found is not None and found.path is None


def test_the_found_file_is_named_as_the_yaml_was(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "ds.json").touch()
    monkeypatch.chdir(project)
    found = reference("ds.json", Path("train/a.yaml"))
    assert found is not None and found.path == Path("ds.json")
    monkeypatch.chdir(project / "train")
    found = reference("ds.json", Path("a.yaml"))
    assert found is not None and found.path == project / "ds.json"


def test_a_document_that_names_no_file_has_no_reference(project: Path) -> None:
    for text in (
        "zero_optimization: {stage: 2}",
        "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2}",
        "[]",
    ):
        assert find_reference(read_text(text, syntax=Syntax.YAML), project / "a.yaml") is None


@pytest.mark.parametrize("mark", [".git", "pyproject.toml", "setup.cfg", "setup.py"])
def test_the_root_is_the_nearest_folder_that_looks_like_one(tmp_path: Path, mark: str) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / mark).touch()
    (tmp_path / "a" / mark).touch()
    assert project_root(tmp_path / "a" / "b") == tmp_path / "a"
