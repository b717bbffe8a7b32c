"""The JSON Schema and DeepSpeed about every real config: what DeepSpeed loads is valid, what it refuses by its form is not.

The schema is asked by `check-jsonschema`, as a user would, and in this process where the file is not strict JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from corpus_files import CorpusFile, as_huggingface_hands_it_on, corpus_files
from deepspeed_load import Verdict, load_values
from jsonschema import Draft7Validator

from ds_accum.config.embedded import find_configs
from ds_accum.config.json_schema import json_schema
from ds_accum.config.launch import Launch
from ds_accum.config.schema import newest_version
from ds_accum.lint.diagnostic import Severity, When
from ds_accum.lint.linter import lint_document

# The rules about what a schema can see.
ABOUT_FORM = {
    *("unknown-key", "removed-key", "block-not-an-object", "wrong-type", "out-of-range", "invalid-choice"),
    *("batch-size-not-positive", "unusable-loss-scale"),
}
# At one of these at least, the batch sizes of a file add up, if they ever do.
WORLD_SIZES = (1, 2, 3, 4, 8, 12, 16, 32, 64, 128)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json_schema(newest_version())


def json_files(corpus: Path) -> Iterator[CorpusFile]:
    """Those that hold an object; DeepSpeed refuses the others whatever they say."""
    for file in corpus_files(corpus):
        if file.path.suffix == ".json" and isinstance(file.read().value, dict):
            yield file


def verdict(file: CorpusFile, world_size: int) -> Verdict | None:
    """DeepSpeed's; for a Hugging Face file about what Trainer hands on, None where it hands on nothing."""
    if file.kind != "hf-auto-json":
        return file.load(Launch(world_size=world_size, framework="raw"))
    embedded = next(find_configs(file.read(), Launch(world_size=world_size, framework="huggingface")))
    try:
        values = as_huggingface_hands_it_on(embedded, world_size)
    except TypeError:  # numbers in quotes, which Trainer can't multiply either
        return None
    return None if values is None else load_values(values, Launch(world_size=world_size))


def loads_somewhere(file: CorpusFile) -> bool:
    verdicts = (verdict(file, world_size) for world_size in WORLD_SIZES)
    return any(found is not None and not found.refused for found in verdicts)


@pytest.mark.engine
def test_what_deepspeed_loads_is_valid(corpus: Path, schema: dict[str, Any]) -> None:
    validator = Draft7Validator(schema)
    found = {
        file.id: [error.message for error in validator.iter_errors(file.read().value)] for file in json_files(corpus)
    }
    refused = {file: messages for file, messages in found.items() if messages}
    assert len(refused) < len(found) / 2
    wrong = [file for file in json_files(corpus) if file.id in refused and loads_somewhere(file)]
    assert not wrong, {file.id: refused[file.id] for file in wrong}


def test_what_deepspeed_refuses_by_its_form_is_not(corpus: Path, schema: dict[str, Any]) -> None:
    validator = Draft7Validator(schema)
    compared, missed = 0, []
    for file in json_files(corpus):
        framework = "huggingface" if file.kind == "hf-auto-json" else "raw"
        diagnostics = lint_document(file.read(), launches=[Launch(world_size=8, framework=framework)])
        claims = [
            item
            for item in diagnostics
            if item.name in ABOUT_FORM and item.severity is Severity.ERROR and item.when is When.LOAD
        ]
        if claims:
            compared += 1
            if validator.is_valid(file.read().value):
                missed.append((file.id, [item.message for item in claims]))
    assert compared
    assert not missed


def test_check_jsonschema_says_the_same(corpus: Path, repository: Path, schema: dict[str, Any], tmp_path: Path) -> None:
    schema_file = tmp_path / "deepspeed.schema.json"
    schema_file.write_text(json.dumps(schema), encoding="utf-8")
    validator = Draft7Validator(schema)
    expected, paths = {}, [*sorted((repository / "configs").glob("*.json"))]
    expected = dict.fromkeys(map(str, paths), True)
    for file in json_files(corpus):
        try:
            values = json.loads(file.path.read_bytes())
        except ValueError:
            continue
        expected[str(file.path)] = validator.is_valid(values)
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "-o", "json", "--schemafile", schema_file, *expected],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    report = json.loads(done.stdout)
    assert not report["parse_errors"]
    refused = {error["filename"] for error in report["errors"]}
    assert refused == {path for path, is_valid in expected.items() if not is_valid}
