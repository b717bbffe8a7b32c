"""The data in `ds_accum/config/versions` is what the installed DeepSpeed does; a new release shows what moved, by name.

Two witnesses: the installed package itself (its pydantic models, and the defaults that `DeepSpeedConfig` fills in), and
its source, followed key by key, which also sees the keys of plain dictionaries that nothing lists.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from ds_accum.config.schema import Block, Key, Schema, history, newest_version, parse_version, schema_for

TOOLS = Path(__file__).resolve().parent.parent / "tools"
VERSIONS = Path(__file__).resolve().parent.parent.parent / "ds_accum" / "config" / "versions"

# Keys of plain dictionaries whose default DeepSpeedConfig does not keep under the key's name, with the reason.
UNRESOLVED: Mapping[tuple[str, str], str] = {
    ("", "train_batch_size"): "derived from the other two",
    ("", "train_micro_batch_size_per_gpu"): "derived from the other two",
    ("", "gradient_accumulation_steps"): "derived from the other two",
    ("", "allgather_size"): "read only where zero_optimization is true or false",
    ("", "vocabulary_size"): "read for a warning, never kept",
    ("", "sequence_parallel_size"): "asked for its presence only",
    ("", "data_parallel_size"): "asked for its presence only",
    ("", "datastates_ckpt"): "kept as `enabled` and `config`",
    ("pipeline", "use_reentrant"): "filled in by the pipeline engine",
    **{
        ("data_efficiency.data_sampling.curriculum_learning", key): "needed by the data sampler, without a default"
        for key in ("curriculum_metrics", "data_cluster_path")
    },
    **{
        ("data_efficiency.data_sampling.dynamic_batching", key): "needed where it is enabled, without a default"
        for key in ("metrics_path", "max_tokens")
    },
    **{
        ("data_efficiency.data_routing.random_ltd", key): "needed where it is enabled, without a default"
        for key in (
            "total_layer_num",
            "random_ltd_layer_num",
            "random_ltd_layer_id",
            "model_mask_name",
            "model_type",
            "hidden_state_order",
            "random_ltd_schedule",
        )
    },
}


def answer(tool: str, *arguments: str) -> dict[str, Any]:
    """The last line that a tool prints, read as JSON; DeepSpeed logs to the same stream."""
    environment = {**os.environ, "DS_ACCELERATOR": os.environ.get("DS_ACCELERATOR", "cpu")}
    command = [sys.executable, "-W", "ignore", str(TOOLS / tool), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    answered: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answered


@cache
def installed() -> dict[str, Any]:
    """What the installed DeepSpeed does, in a process of its own."""
    return answer("describe_deepspeed.py")


@cache
def source() -> dict[str, Any]:
    """What the installed DeepSpeed's source says."""
    return answer("read_deepspeed_schema.py", str(distribution("deepspeed").locate_file("")))


def schema() -> Schema:
    return schema_for(parse_version(installed()["version"]))


def reachable(schema: Schema) -> Iterator[Block]:
    """The root, and every block that a known key leads to."""
    pending = [""]
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            yield schema.block(name)
            pending += [key.block for key in schema.block(name).keys.values() if key.block is not None]


def differences(block: Block, theirs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What DeepSpeed's model of a block has and the data has not, or the other way round, one line each."""
    found = [f"{block.name}.{key}: only in DeepSpeed" for key in theirs if key not in block.keys]
    found += [f"{block.name}.{key}: only in the data" for key in block.keys if key not in theirs]
    unsaid: dict[str, Any] = dict(Key._field_defaults)
    for key, spec in theirs.items():
        if key not in block.keys:
            continue
        said = {**unsaid, **spec, "name": key, "choices": tuple(spec.get("choices", ()))}
        for name, value in said.items():
            if (held := getattr(block.keys[key], name)) != value:
                found.append(f"{block.name}.{key}: {name} is {value!r} in DeepSpeed, {held!r} in the data")
    return found


# --- the data against the package -------------------------------------------------------------------------------------


@pytest.mark.engine
def test_every_validated_block_is_the_model_that_deepspeed_has() -> None:
    blocks = {block.name: block for block in reachable(schema()) if block.kind == "model"}
    assert sorted(blocks) == sorted(installed()["models"])
    assert [line for name, block in blocks.items() for line in differences(block, installed()["models"][name])] == []


def test_a_field_that_moved_is_named() -> None:
    block = schema_for((0, 19, 8)).block("tensorboard")
    same = {name: {"type": key.type, "default": key.default} for name, key in block.keys.items()}
    assert differences(block, same) == []
    moved: dict[str, dict[str, Any]] = {
        "enabled": {"type": "bool", "default": True},
        "output_path": {"type": "str", "default": "", "null": True},
        "run_name": {"type": "str", "default": ""},
    }
    assert differences(block, moved) == [
        "tensorboard.run_name: only in DeepSpeed",
        "tensorboard.job_name: only in the data",
        "tensorboard.enabled: default is True in DeepSpeed, False in the data",
        "tensorboard.output_path: null is True in DeepSpeed, False in the data",
    ]


@pytest.mark.engine
def test_every_default_is_the_one_that_deepspeed_fills_in() -> None:
    wrong: list[str] = []
    for block in reachable(schema()):
        if block.kind != "mapping":
            continue
        for key in block.keys.values():
            if key.block is None and (block.name, key.name) not in UNRESOLVED:
                default = installed()["defaults"][block.name].get(key.name, "nothing")
                if default != key.default:
                    wrong.append(f"{block.name}.{key.name}: {default!r} in DeepSpeed, {key.default!r} in the data")
    assert wrong == []


@pytest.mark.engine
def test_every_exception_from_the_defaults_is_still_one() -> None:
    known = {(block.name, key) for block in reachable(schema()) for key in block.keys}
    for block, key in known & UNRESOLVED.keys():
        default = installed()["defaults"].get(block, {}).get(key)
        assert default is None, f"{block}.{key} is resolved to {default!r} by now"
    assert UNRESOLVED.keys() <= known


@pytest.mark.engine
def test_the_optimizers_are_those_that_deepspeed_knows_by_name() -> None:
    assert optimizers_of(installed()["version"]) == set(installed()["optimizers"])


def optimizers_of(version: str) -> set[str]:
    data = json.loads((VERSIONS / "history.json").read_text("utf-8"))["optimizers"]
    names = set(data["newest"])
    for change in reversed(data["changes"]):
        if parse_version(change["version"]) > parse_version(version):
            names = names - set(change.get("added", ())) | set(change.get("removed", ()))
    return names


def test_muon_came_with_0_17_6_and_the_one_bit_optimizers_went_with_0_19_7() -> None:
    one_bit = {"onebitadam", "onebitlamb", "zerooneadam"}
    assert "muon" in optimizers_of("0.17.6")
    assert "muon" not in optimizers_of("0.17.5")
    assert one_bit <= optimizers_of("0.19.6")
    assert not one_bit & optimizers_of("0.19.7")


# --- the data against the source --------------------------------------------------------------------------------------


@pytest.mark.engine
def test_every_block_has_the_keys_that_the_source_reads() -> None:
    wrong: list[str] = []
    for block in reachable(schema()):
        # A value that DeepSpeed passes on as it is has no keys of its own here.
        read = source()["blocks"].get(block.name)
        if read is None:
            wrong.append(f"{block.name}: the source reads no such block")
            continue
        if (read["kind"], read["unknown"]) != (block.kind, block.unknown):
            wrong.append(f"{block.name}: {read['kind']}, {read['unknown']} in the source")
        wrong += [f"{block.name}.{key}: only in the source" for key in sorted({*read["keys"]} - {*block.keys})]
        wrong += [f"{block.name}.{key}: only in the data" for key in sorted({*block.keys} - {*read["keys"]})]
    assert wrong == []


@pytest.mark.engine
def test_every_key_that_the_source_refuses_by_name_is_in_the_history() -> None:
    version = parse_version(installed()["version"])
    refused = {
        f"{change.block}.{change.key}".removeprefix(".")
        for change in history()
        if change.refused and change.version <= version
    }
    assert refused == set(source()["refused"])


# --- the files --------------------------------------------------------------------------------------------------------


def test_every_key_stands_on_a_line_of_its_own() -> None:
    lines = (VERSIONS / "keys.json").read_text("utf-8").splitlines()
    data = json.loads("\n".join(lines))
    keys = [(name, key) for name, block in data["blocks"].items() for key in block["keys"]]
    assert sum(line.startswith("      ") for line in lines) == len(keys)
    changes = json.loads((VERSIONS / "history.json").read_text("utf-8"))["changes"]
    assert sum(line.startswith("    {") for line in (VERSIONS / "history.json").read_text("utf-8").splitlines()) == len(
        changes
    )


def test_every_nested_block_is_described() -> None:
    newest = schema_for(newest_version())
    assert {block.name for block in reachable(newest)} == set(newest.blocks)
