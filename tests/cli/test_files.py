"""A file is written whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ds_accum.cli.files import write_file
from ds_accum.errors import UsageError


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    write_file(tmp_path / "a.json", "{}\n")
    (tmp_path / "b.json").touch()
    assert (tmp_path / "a.json").read_text("utf-8") == "{}\n"
    assert (tmp_path / "a.json").stat().st_mode == (tmp_path / "b.json").stat().st_mode


def test_a_file_that_is_there_is_replaced_unless_it_must_not_be_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("before", encoding="utf-8")
    path.chmod(0o600)
    with pytest.raises(UsageError, match="is there already"):
        write_file(path, "after", replace=False)
    assert path.read_text("utf-8") == "before"
    write_file(path, "after")
    assert path.read_text("utf-8") == "after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("before", encoding="utf-8")
    (tmp_path / "link.json").symlink_to("real.json")
    write_file(tmp_path / "link.json", "after")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text("utf-8") == "after"


def test_what_no_encoding_can_say_is_escaped(tmp_path: Path) -> None:
    write_file(tmp_path / "report", "name \udc80\n")
    assert (tmp_path / "report").read_bytes() == b"name \\udc80\n"


def test_a_device_is_written_to() -> None:
    write_file(Path(os.devnull), "text")
    assert not Path(os.devnull).is_file()


def test_what_was_there_stays_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_text("before", encoding="utf-8")

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(UsageError, match="can't write .*: no space left on device"):
        write_file(path, "after")
    assert [item.name for item in tmp_path.iterdir()] == ["a.json"]
    assert path.read_text("utf-8") == "before"


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't write .*: no such file or directory"):
        write_file(tmp_path / "no" / "file", "x")
