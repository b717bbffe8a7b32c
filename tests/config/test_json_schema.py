"""The JSON Schema accepts what DeepSpeed's models accept, refuses what they refuse, and describes every key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft7Validator

from ds_accum.config.block import DSAccumBlock
from ds_accum.config.huggingface import FILLED_IN
from ds_accum.config.json_schema import describe_key, json_schema
from ds_accum.config.pydantic_models import validate
from ds_accum.config.schema import Block, Key, known_versions, newest_version, schema_for

NEWEST = newest_version()
SCHEMA = json_schema(NEWEST)

VALUES: tuple[Any, ...] = (
    *(True, False, None, 0, 1, 2, 3, 4, 8, -1, 10**30, 0.0, 0.5, 1.0, 2.0, 2.5, 1e8, -0.5),
    *("0", "1", "2", " 2 ", "1.0", "1.", "1e3", "1_000", "+1", "-3", "0.5", ".5", "0x10", "5e8", "inf", "NaN", ""),
    *("true", "TRUE", "Yes", "on", "t", "f", "maybe", "auto", "none", "cpu", "CPU", "nvme", "symmetric", "torch"),
    *([], ["a"], [1], ["z3"], {}, {"a": 1}),
)


def complaints(config: Any, schema: dict[str, Any] = SCHEMA) -> list[str]:
    return [error.message for error in Draft7Validator(schema).iter_errors(config)]


def config_with(block: Block, key: str, value: Any) -> dict[str, Any]:
    config: dict[str, Any] = {key: value}
    for part in reversed(block.path):
        config = {part: config}
    return config


def validated_keys() -> Iterator[tuple[Block, Key]]:
    for block in schema_for(NEWEST).blocks.values():
        if block.kind == "model":
            yield from ((block, key) for key in block.keys.values())


def what_only_code_refuses(block: Block, key: Key, value: Any) -> bool:
    """What a JSON Schema is too lenient about: a number in a string that is out of range, words that code looks at."""
    if isinstance(value, str | bool):
        return key.type in ("int", "float", "int_enum") or block.name == "zero_optimization.zenflow"
    if key.type == "list[str]":
        return False
    return block.name == "zero_optimization.zenflow" and key.name == "update_interval"


# ------------------------------------------------------------------------------------------------------- what is valid


@pytest.mark.parametrize(("block", "key"), [*validated_keys()], ids=lambda item: item.name or "root")
def test_a_validated_key_is_valid_with_the_values_that_deepspeed_takes(block: Block, key: Key) -> None:
    for value in VALUES:
        _, errors = validate(schema_for(NEWEST), block, {key.name: value})
        found = complaints(config_with(block, key.name, value))
        if not errors:
            assert not found, value
        elif not what_only_code_refuses(block, key, value):
            assert found, value


@pytest.mark.parametrize("path", sorted(FILLED_IN), ids=".".join)
def test_auto_is_valid_and_proposed_where_hugging_face_fills_it_in(path: tuple[str, ...]) -> None:
    value: Any = "auto"
    for part in reversed(path):
        value = {part: value}
    assert not complaints(value)
    holder: Any = SCHEMA
    for part in path:
        holder = next(form for form in [holder, *holder.get("anyOf", ())] if "properties" in form)["properties"][part]
    assert "auto" in [snippet["body"] for form in holder["anyOf"] for snippet in form.get("defaultSnippets", ())]


@pytest.mark.parametrize(
    "config",
    [
        {"train_batch_size": "auto", "gradient_clipping": "auto"},
        {"my_own_key": 1, "$schema": "./deepspeed.schema.json"},
        {"optimizer": {"type": "Adafactor", "params": {"d": 2, "lr": "auto"}}},
        {"scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "last_batch_iteration": -1}}},
        {"zero_optimization": True},
        {"zero_optimization": False},
        {"zero_optimization": {"stage": "2", "offload_optimizer": None, "overlap_comm": "auto", "strict": False}},
        {"zero_optimization": {"prefetch_bucket_size": 5e7, "leaf_module": {"names": "block"}}},
        {"bfloat16": {"enabled": "yes"}, "aio": None, "tensorboard": "auto"},
        {"communication_data_type": "BF16", "checkpoint": {"tag_validation": "fail"}},
        {"data_types": {"grad_accum_dtype": "float32"}, "torch_autocast": {"dtype": "torch.bfloat16"}},
        {"ds_accum": {"normalization": "token", "counting": {"shift": True}, "lint": {"ignore": {"DSA101": "why"}}}},
        {"activation_checkpointing": {"my_own_key": 1}},
    ],
)
def test_what_deepspeed_reads_is_valid(config: dict[str, Any]) -> None:
    assert complaints(config) == []


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"train_batch_size": 0}, "0 is not valid"),
        ({"train_batch_size": "8"}, "'8' is not valid"),
        ({"train_batch_size": 2.5}, "2.5 is not valid"),
        ({"zero_optimization": {"stage": 4}}, "4 is not valid"),
        ({"zero_optimization": {"overlap_com": True}}, "'overlap_com' was unexpected"),
        ({"zero_optimization": {"offload_optimizer": "cpu"}}, "'cpu' does not match '^auto$'"),
        ({"zero_optimization": {"offload_optimizer": {"device": "gpu"}}}, "'gpu' is not valid"),
        ({"zero_optimization": {"mics_shard_size": 8}}, "8 should not be valid"),
        ({"elasticity": {"enabled": False}}, "should not be valid"),
        ({"fp16": True}, "True is not of type"),
        ({"fp16": {"loss_scale": -1}}, "-1 is not valid"),
        ({"communication_data_type": "fp8"}, "'fp8' is not valid"),
        ({"gradient_allreduce_op": "MEAN"}, "'MEAN' is not"),
        ({"checkpoint": {"tag_validation": "error"}}, "'error' is not valid"),
        ({"optimizer": {"type": ["AdamW"]}}, "is not valid"),
        ({"wall_clock_breakdown": "false"}, "'false' is not valid"),
        ({"ds_accum": {"normalisation": "token"}}, "'normalisation' was unexpected"),
        ({"ds_accum": {"initial_tokens": 0}}, "0 is not valid"),
        ([], "[] is not of type 'object'"),
    ],
)
def test_what_deepspeed_or_we_refuse_is_not(config: Any, complaint: str) -> None:
    found = complaints(config)
    assert len(found) == 1
    assert complaint in found[0]


# ------------------------------------------------------------------------------------------------------------ releases


@pytest.mark.parametrize("version", known_versions(), ids=lambda version: ".".join(map(str, version)))
def test_the_schema_of_every_release_is_one(version: tuple[int, ...]) -> None:
    Draft7Validator.check_schema(json_schema(version))


def test_an_older_release_is_described_as_it_was() -> None:
    older = json_schema((0, 19, 5))
    assert complaints({"elasticity": {"enabled": False}}, older) == []
    assert complaints({"zero_optimization": {"mics_shard_size": 8}}, older) == []
    assert complaints({"zero_optimization": {"stage3_allgather_sequential": True}}, json_schema((0, 14, 0)))
    assert json_schema((0, 19, 2))["properties"]["gradient_clipping"]["default"] == 0.0
    assert SCHEMA["properties"]["gradient_clipping"]["default"] == 1.0


# --------------------------------------------------------------------------------------------------------------- words


def test_a_key_is_described_with_its_default_and_the_release_that_brought_it() -> None:
    said = describe_key(NEWEST, "zero_optimization", "stage3_use_all_reduce_for_fetch_params")
    assert said is not None
    assert said.startswith("ZeRO 3: fetch parameters by all-reduce")
    assert said.endswith("Default: false. Since DeepSpeed 0.14.3.")
    assert describe_key(NEWEST, "zero_optimization", "overlap_com") is None


def test_every_description_is_of_a_key_that_some_release_reads() -> None:
    from ds_accum.config.json_schema import _texts

    known = {(block.name, key) for version in known_versions() for block in schema_for(version).blocks.values()
             for key in block.keys}  # fmt: skip
    ours = {("", "ds_accum"), ("", "$schema")}
    said = {(block, key) for block, texts in _texts().items() for key in texts if not block.endswith(".params")}
    assert said - known - ours == set()


def test_every_key_of_the_root_and_of_zero_optimization_is_described() -> None:
    from ds_accum.config.json_schema import _texts

    for name in ("", "zero_optimization", "fp16", "bf16", "zero_optimization.offload_optimizer"):
        assert set(schema_for(NEWEST).block(name).keys) <= set(_texts()[name]), name


def test_every_field_of_our_own_block_is_described() -> None:
    definition = SCHEMA["definitions"][DSAccumBlock.__name__]
    assert set(definition["properties"]) == set(DSAccumBlock.model_fields)
    assert all(field.get("description") for field in definition["properties"].values())


def test_no_editor_proposes_a_form_that_is_only_tolerated() -> None:
    """Editors propose `enum`, `const`, `default` and the types boolean and null; a tolerated form is none of these."""
    for form in json.loads(json.dumps(SCHEMA["definitions"])).values():
        assert not {"enum", "const", "default"} & form.keys()
