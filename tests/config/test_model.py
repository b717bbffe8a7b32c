"""Reading a config block by block, with and without asking pydantic."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_accum.config import model
from ds_accum.config.model import DeepSpeedConfig
from ds_accum.config.pydantic_models import validate
from ds_accum.config.schema import Block, newest_version, schema_for

SCHEMA = schema_for(newest_version())
MODELS = [block for block in SCHEMA.blocks.values() if block.kind == "model"]


def read(values: dict[str, Any]) -> DeepSpeedConfig:
    return DeepSpeedConfig.read(values, version=newest_version())


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 5),
    st.sampled_from([10**6, 2**63 - 1, 2**63, -(2**63), 10**40]),
    st.sampled_from([0.0, 0.5, 1.0, 2.0, -0.5, 1e299, 1e301]),
    st.sampled_from(["auto", "cpu", "nvme", "none", "torch", "symmetric", "1", "true", "", "text"]),
)


@st.composite
def settings_of(draw: st.DrawFn, block: Block, depth: int = 0) -> dict[str, Any]:
    names = [*block.keys, *(key.name_in_model for key in block.keys.values() if key.name_in_model), "no_such_key"]
    settings: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(names), max_size=4, unique=True)):
        key = block.keys.get(name)
        if key is not None and key.block is not None and depth == 0 and draw(st.booleans()):
            settings[name] = draw(settings_of(SCHEMA.block(key.block), depth + 1))
        else:
            settings[name] = draw(SCALARS)
    return settings


@given(st.data())
def test_what_is_read_without_pydantic_is_what_pydantic_would_make_of_it(data: st.DataObject) -> None:
    block = data.draw(st.sampled_from(MODELS))
    settings = data.draw(settings_of(block))
    plain = model._plain_values(SCHEMA, block, settings)
    if plain is None:
        return
    values, errors = validate(SCHEMA, block, settings)
    assert errors == ()
    for name in settings:
        key = block.keys[name]
        if key.block is None:
            assert (plain[name], type(plain[name])) == (values[name], type(values[name])) or key.type == "float"
            assert plain[name] == values[name]


def test_the_reading_without_pydantic_covers_ordinary_blocks() -> None:
    for block, settings in (
        ("zero_optimization", {"stage": 2, "overlap_comm": True, "offload_optimizer": {"device": "cpu"}}),
        ("fp16", {"enabled": True, "loss_scale": 0, "initial_scale_power": 16}),
        ("bf16", {"enabled": "auto"}),
    ):
        assert model._plain_values(SCHEMA, SCHEMA.block(block), settings) is not None


@pytest.mark.parametrize(
    ("values", "block", "expected"),
    [
        ({}, "zero_optimization", {"stage": 0}),
        ({"zero_optimization": {"stage": "2"}}, "zero_optimization", {"stage": 2}),
        ({"zero_optimization": {"stage": "auto"}}, "zero_optimization", {"stage": 0}),
        ({"zero_optimization": True}, "zero_optimization", {"stage": 1, "allgather_bucket_size": 500_000_000}),
        ({"zero_optimization": True, "allgather_size": 7}, "zero_optimization", {"allgather_bucket_size": 7}),
        ({"zero_optimization": False}, "zero_optimization", {"stage": 0}),
        ({"bfloat16": {"enabled": True}}, "bf16", {"enabled": True}),
        ({"bf16": None, "bfloat16": {"enabled": True}}, "bf16", {"enabled": True}),
        ({"bf16": {"enabled": False}, "bfloat16": {"enabled": True}}, "bf16", {"enabled": False}),
        ({"tensorboard": "auto"}, "tensorboard", {"enabled": False}),
        ({"zero_optimization": {"offload_param": "auto"}}, "zero_optimization.offload_param", {"device": "none"}),
        (
            {"zero_optimization": {"offload_param": {"device": "cpu"}}},
            "zero_optimization.offload_param",
            {"device": "cpu"},
        ),
        ({"gradient_clipping": None}, "", {"gradient_clipping": None}),
    ],
)
def test_the_effective_values_are_those_that_deepspeed_uses(
    values: dict[str, Any], block: str, expected: dict[str, Any]
) -> None:
    reading = read(values).block(block)
    assert {key: reading[key] for key in expected} == expected
    assert reading.errors == ()


def test_a_block_that_is_no_mapping_says_so_and_has_its_defaults() -> None:
    reading = read({"fp16": True}).block("fp16")
    assert not reading.is_mapping
    assert reading["enabled"] is False


def test_a_key_counts_as_written_only_if_deepspeed_looks_at_it() -> None:
    zero = read({"zero_optimization": {"stage": 1, "overlap_comm": "auto"}}).block("zero_optimization")
    assert [name for name in ("stage", "overlap_comm", "reduce_scatter") if zero.written(name)] == ["stage"]


def test_the_old_spelling_of_bf16_can_not_be_null() -> None:
    assert not read({"bfloat16": None}).block("bf16").is_mapping
    assert read({"bf16": None}).block("bf16").is_mapping


def test_a_release_checks_only_what_its_code_checks() -> None:
    values = {"fp16": {"loss_scale": -1}, "zero_optimization": {"zenflow": {"update_interval": 0}}}
    for version, refused in (((0, 18, 7), False), ((0, 18, 8), True)):
        assert bool(DeepSpeedConfig.read(values, version=version).block("fp16").errors) is refused
    for version, refused in (((0, 19, 5), False), ((0, 19, 6), True)):
        assert bool(DeepSpeedConfig.read(values, version=version).block("zero_optimization").errors) is refused


def test_the_stage_is_unknown_where_it_is_refused() -> None:
    assert read({"zero_optimization": {"stage": 7}}).zero_stage is None
    assert read({"zero_optimization": {"stage": 3}}).zero_stage == 3


def test_pydantic_is_imported_for_a_value_out_of_the_ordinary_only() -> None:
    program = (
        "import sys; from ds_accum.config.model import DeepSpeedConfig;"
        "read = lambda v: DeepSpeedConfig.read(v, version=(0, 19, 8)).block('zero_optimization')['stage'];"
        "assert read({'zero_optimization': {'stage': 2}}) == 2; print('pydantic' in sys.modules);"
        "assert read({'zero_optimization': {'stage': '2'}}) == 2; print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "True"]
