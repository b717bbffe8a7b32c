"""Our models of DeepSpeed's blocks refuse and coerce exactly as DeepSpeed's own."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ds_accum.config.pydantic_models import validate
from ds_accum.config.schema import Block, newest_version, schema_for

SCHEMA = schema_for(newest_version())

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, 3, 4, 7, -1, 512, 2**31, 2**63, 10**30, 10**400),
    *(0.0, 0.5, 1.0, 2.0, 2.5, -0.5, 1e9, 1e300),
    *("", "auto", "true", "False", "yes", "off", "0", "1", "2", "3 ", " 2", "2.0", "1e3", "5e8", "1_000", "0x10", "-1"),
    *("cpu", "nvme", "none", "CPU", "gpu", "torch", "liger", "symmetric", "asymmetric", "a/path", "fp16", "text"),
    *([], [1], ["z1"], ["z1", "other"], ["a", "b"], [None], {}, {"a": 1}, {"enabled": True}, {"stage": 1}),
)


def load_models() -> dict[str, Any]:
    """The helper module beside this one; tests are not a package."""
    path = Path(__file__).with_name("deepspeed_models.py")
    spec = importlib.util.spec_from_file_location("deepspeed_models", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    models: dict[str, Any] = module.deepspeed_models()
    return models


def settings_of(block: Block) -> Iterator[dict[str, Any]]:
    """Every key of a block with every value, nested blocks included, and both spellings of a key."""
    for key in block.keys.values():
        for value in VALUES:
            yield {key.name: value}
            if key.name_in_model is not None:
                yield {key.name_in_model: value}
                yield {key.name_in_model: value, key.name: value}
        if key.block is not None:
            for nested in settings_of(SCHEMA.block(key.block)):
                yield {key.name: nested}
    for value in (1, "auto", None):
        yield {"no_such_key": value}
    yield {"strict": True}


def theirs(model: Any, settings: dict[str, Any]) -> dict[str, Any] | None:
    """What DeepSpeed's model makes of the settings; None if it refuses."""
    try:
        read = model(**settings)
    except Exception:
        return None
    values: dict[str, Any] = read.model_dump(by_alias=True)
    return values


# What a rule of its own checks, because it looks at more than one key or moves a value: left out of the comparison.
def is_checked_by_a_rule(block: str, settings: dict[str, Any]) -> bool:
    if block == "zero_optimization":
        deprecated = {key.name for key in SCHEMA.block(block).keys.values() if key.replaced_by is not None}
        offload = settings.get("offload_optimizer")
        partial = isinstance(offload, dict) and "ratio" in offload
        return bool(deprecated & settings.keys()) or "compute_grad_norm" in settings or partial
    return False


@pytest.mark.engine
@pytest.mark.parametrize("name", [block.name for block in SCHEMA.blocks.values() if block.kind == "model"])
def test_a_block_is_read_as_deepspeed_reads_it(name: str) -> None:
    models = load_models()
    if name not in models:
        assert any(name.startswith(f"{parent}.") for parent in models), f"{name} is compared inside its parent"
        return
    compared = 0
    for settings in settings_of(SCHEMA.block(name)):
        if is_checked_by_a_rule(name, settings):
            continue
        wanted = theirs(models[name], settings)
        values, errors = validate(SCHEMA, SCHEMA.block(name), settings)
        assert (wanted is None) == bool(errors), (settings, wanted, errors)
        if wanted is not None:
            # `overlap_comm` is filled in by the stage; an excluded field is not dumped by theirs; a dtype is no JSON.
            for key in wanted.keys() - {"overlap_comm", "dtype", "leaf_module", "zenflow"}:
                assert _plain(values[key]) == _plain(wanted[key]), (settings, key)
                assert type(values[key]) is type(wanted[key]) or isinstance(wanted[key], int), (settings, key)
        compared += 1
    assert compared > len(VALUES)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def test_an_error_of_one_key_does_not_hide_the_values_of_the_others() -> None:
    values, errors = validate(SCHEMA, SCHEMA.block("zero_optimization"), {"stage": "2", "overlap_comm": "perhaps"})
    assert [error.path for error in errors] == [("overlap_comm",)]
    assert values["stage"] == 2
    assert "overlap_comm" not in values


def test_a_nested_error_has_its_whole_path() -> None:
    block = SCHEMA.block("zero_optimization")
    _, errors = validate(SCHEMA, block, {"offload_optimizer": {"device": "gpu"}})
    assert [(error.path, error.kind) for error in errors] == [(("offload_optimizer", "device"), "enum")]


def test_auto_is_dropped_before_the_names_are_looked_at() -> None:
    values, errors = validate(SCHEMA, SCHEMA.block("zero_optimization"), {"stage": "auto", "no_such_key": "auto"})
    assert errors == ()
    assert values["stage"] == 0
