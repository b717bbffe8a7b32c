"""The installed DeepSpeed is found by the names of folders, without importing anything."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from ds_accum.cli.installed_deepspeed import installed_deepspeed


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("deepspeed-0.19.8.dist-info", "0.19.8"),
        ("deepspeed-0.14.0+cu121.dist-info", "0.14.0+cu121"),
        ("deepspeed-0.18.3-py3.11.egg-info", "0.18.3"),
        ("DeepSpeed-0.9.5.egg-info", "0.9.5"),
        ("deepspeed", None),
        ("deepspeed_kernels-0.1.dist-info", None),
        ("deepspeed-mii-0.3.0.dist-info", None),
        ("~eepspeed-0.19.8.dist-info", None),
    ],
)
def test_the_name_of_the_metadata_folder_says_the_version(tmp_path: Path, name: str, version: str | None) -> None:
    (tmp_path / name).mkdir()
    assert installed_deepspeed([str(tmp_path)]) == version


def test_the_first_folder_of_the_search_path_wins(tmp_path: Path) -> None:
    for version in ("0.18.3", "0.19.8"):
        (tmp_path / version / f"deepspeed-{version}.dist-info").mkdir(parents=True)
    path = [str(tmp_path / "absent"), str(tmp_path / "0.18.3"), str(tmp_path / "0.19.8")]
    assert installed_deepspeed(path) == "0.18.3"


@pytest.mark.engine
def test_it_is_the_version_that_the_metadata_gives() -> None:
    assert installed_deepspeed() == importlib.metadata.version("deepspeed")
