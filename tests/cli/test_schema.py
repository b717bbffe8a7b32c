"""`ds-accum schema`: the schema on standard output or in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ds_accum.config.json_schema import json_schema


def test_the_schema_of_a_release_is_printed(ds_accum: Any) -> None:
    finished = ds_accum("schema", "--deepspeed-version", "0.18.5")
    assert (finished.code, finished.errors) == (0, "")
    assert json.loads(finished.output) == json_schema((0, 18, 5))


def test_the_release_is_the_installed_one_unless_said_otherwise(ds_accum: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("ds_accum.cli.installed_deepspeed.installed_deepspeed", lambda: "0.19.2")
    assert json.loads(ds_accum("schema").output)["title"] == "DeepSpeed 0.19.2 config"


def test_the_schema_is_written_to_a_file_in_place_of_an_older_one(ds_accum: Any, folder: Path) -> None:
    path = folder / "deepspeed.schema.json"
    path.write_text("an older one", encoding="utf-8")
    finished = ds_accum("schema", "--output-file", path.name)
    assert (finished.code, finished.output, finished.errors) == (0, "", "")
    assert json.loads(path.read_text("utf-8"))["type"] == "object"
    assert [item.name for item in folder.iterdir() if "schema" in item.name] == [path.name]


def test_a_version_that_is_none_is_an_error(ds_accum: Any) -> None:
    finished = ds_accum("schema", "--deepspeed-version", "newest")
    assert finished.code == 2
    assert "is not a DeepSpeed version" in finished.errors
