"""What a launch says where it can't even begin, and that it then leaves everything as it was."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ds_accum.compare.jobs import Job
from ds_accum.compare.launchers import Launcher
from ds_accum.compare.launching import Launch
from ds_accum.errors import UsageError
from tests.compare.runs import FAKE, small_spec

JOB = Job(kind="parity", variants=("zero-0 stock",))


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The system refuses to write more bytes than that to any file, as it does where a disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own folder, which is the current one."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "precious").write_text("data", encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


def test_a_job_that_can_not_be_written_is_one_sentence_and_leaves_no_folder(tmp_path: Path, home: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    launcher = Launcher(kind="local", folder=shared, worker=(str(FAKE),))
    with (
        files_of_at_most(10),
        pytest.raises(UsageError, match="can't write the job of a launch to .*/shared: ") as raised,
    ):
        Launch(JOB, small_spec(), launcher).__enter__()
    assert "--shared-dir" in (raised.value.remedy or "")
    assert list(shared.iterdir()) == []
    assert (home / "precious").exists()


def test_a_folder_that_is_not_there_is_one_sentence_and_nothing_is_removed(tmp_path: Path, home: Path) -> None:
    launcher = Launcher(kind="local", folder=tmp_path / "gone", worker=(str(FAKE),))
    with pytest.raises(UsageError, match="can't write the job of a launch to .*/gone: no such file or directory"):
        Launch(JOB, small_spec(), launcher).__enter__()
    assert (home / "precious").exists()
