"""DeepSpeed's validated config blocks as pydantic models, built from the key table of the release that is asked about.

`validate(block, value)` does what DeepSpeed's own model of that block does with a value: the same coercions
("2" is stage 2, "yes" is true), the same refusals, the same silent dropping of every key whose value is `"auto"`. The
field table is data (`schema.py`); what a table can't say, the validators that look at more than one key, stands here as
functions, one per validator of DeepSpeed 0.19.8 (`runtime/zero/config.py`, `runtime/precision_config.py`,
`runtime/zenflow/zenflow_config.py`, `runtime/zero/leaf_module_config.py`).

Importing this module imports pydantic, which costs a tenth of a second: `model.py` comes here only for a block that
holds anything out of the ordinary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Enum, IntEnum
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ds_accum.config.model import BlockError
from ds_accum.config.schema import Block, Key, Schema, Version, checks_value, schema_for


def validate(schema: Schema, block: Block, value: Any) -> tuple[dict[str, Any], tuple[BlockError, ...]]:
    """The values that DeepSpeed's model of `block` makes of `value`, and the errors with which it refuses.

    Paths in the errors are relative to the block. The values are those of the keys without an error, so that one wrong
    key does not hide what is wrong with the others.
    """
    model = _model_for(schema.version, block.name)
    try:
        return model.model_validate(value).model_dump(by_alias=True), ()
    except ValidationError as error:
        errors = tuple(_block_errors(error))
    refused = {item.path[0] for item in errors if item.path}
    try:
        values = model.model_validate({key: held for key, held in value.items() if key not in refused})
    except ValidationError:
        return {}, errors
    return {key: held for key, held in values.model_dump(by_alias=True).items() if key not in refused}, errors


class _DeepSpeedModel(BaseModel):
    """`DeepSpeedConfigModel` (runtime/config_utils.py): forbids unknown keys, and drops `"auto"` before it looks."""

    model_config = ConfigDict(
        extra="forbid",
        validate_default=True,
        populate_by_name=True,
        use_enum_values=True,
        arbitrary_types_allowed=True,
        protected_namespaces=(),
    )

    @model_validator(mode="before")
    @classmethod
    def _drop_auto(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        # `strict` is a keyword of DeepSpeed's own constructor, not a field: it is swallowed, and when true keeps
        # "auto".
        strict = values.get("strict", False)
        return {key: value for key, value in values.items() if key != "strict" and (strict or value != "auto")}


@lru_cache(maxsize=128)
def _model_for(version: Version, name: str) -> type[BaseModel]:
    schema = schema_for(version)
    fields: dict[str, Any] = {}
    for key in schema.block(name).keys.values():
        fields[key.name_in_model or key.name] = (
            _annotation(schema, key),
            Field(
                default=_NO_DTYPE if key.type == "dtype" else key.default,
                alias=key.name if key.name_in_model else None,
            ),
        )
    validators: dict[str, Any] = {
        check.__name__: model_validator(mode=mode)(check)  # type: ignore[call-overload]
        for mode, check in _VALIDATORS.get(name, ())
        if check is not zenflow_interval or checks_value(version, name, "update_interval")
    }
    return create_model(
        f"Block_{name.replace('.', '_')}", __base__=_DeepSpeedModel, __validators__=validators, **fields
    )


def _annotation(schema: Schema, key: Key) -> Any:
    base: Any
    if key.block is not None:
        base = _model_for(schema.version, key.block)
    elif key.type in ("int_enum", "str_enum"):
        base = _enumeration(key)
    elif key.type == "literal":
        base = _literal(key)
    elif key.type == "list[literal]":
        base = list[_literal(key)]  # type: ignore[misc]
    else:
        base = _TYPES[key.type]
    bounds = {name: bound for name in ("ge", "gt", "le", "lt") if (bound := getattr(key, name)) is not None}
    if bounds:
        base = Annotated[base, Field(**bounds)]
    before = _FIELD_VALIDATORS.get((key.type, key.name))
    if before is not None and checks_value(schema.version, "fp16", key.name):
        base = Annotated[base, BeforeValidator(before)]
    return base | None if key.null else base


def _enumeration(key: Key) -> Any:
    members = [(f"value_{choice}", choice) for choice in key.choices]
    return IntEnum("Stage", members) if key.type == "int_enum" else Enum("Choice", members, type=str)


def _literal(key: Key) -> Any:
    return Literal.__getitem__(key.choices)


_NO_DTYPE = object()  # stands for a default that JSON can't write


def _no_json_value(value: Any) -> Any:
    # DeepSpeed annotates the field with `torch.dtype`: no JSON value is an instance of it, not even "fp16".
    if value is _NO_DTYPE:
        return None
    raise PydanticCustomError("is_instance_of", "Input should be an instance of dtype")


_TYPES: Mapping[str, Any] = {
    "any": Any,
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "list": list,
    "dict": dict,
    "dict[str]": dict[str, Any],
    "list[str]": list[str],
    "tuple": tuple,
    "path": FilePath,
    "str|int": str | int,
    "dtype": Annotated[Any, PlainValidator(_no_json_value)],
}


# --- validators of one field -----------------------------------------------------------------------------------------


def _loss_scale(value: Any) -> float:
    if isinstance(value, bool):
        raise PydanticCustomError("loss_scale", "must be a number, not a boolean")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise PydanticCustomError("loss_scale", "must be a number") from None
    if not math.isfinite(number) or number < 0:
        raise PydanticCustomError("loss_scale", "must be finite and at least 0 (0 means dynamic loss scaling)")
    return number


def _scale_integer(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("loss_scale", "must be an integer, not a boolean")
    if isinstance(value, float) and not math.isfinite(value):
        raise PydanticCustomError("loss_scale", "must be finite")
    try:
        int(value)
    except (TypeError, ValueError):
        raise PydanticCustomError("loss_scale", "must be an integer") from None
    return value


_FIELD_VALIDATORS: Mapping[tuple[str, str], Callable[[Any], Any]] = {
    ("float", "loss_scale"): _loss_scale,
    ("int", "loss_scale_window"): _scale_integer,
    ("int", "min_loss_scale"): _scale_integer,
}


# --- validators that look at several fields --------------------------------------------------------------------------


def leaf_names_may_be_one_string(cls: type[BaseModel], values: Any) -> Any:  # noqa: ARG001 (pydantic wants the name)
    if values is None:
        return {}
    if not isinstance(values, dict):
        return values
    return {
        key: [value] if key in ("classes", "names", "name_suffixes") and isinstance(value, str) else value
        for key, value in values.items()
    }


def zenflow_words(self: Any) -> Any:
    if self.select_strategy not in ("auto", "step", "epoch"):
        raise PydanticCustomError("zenflow", 'select_strategy must be "auto", "step" or "epoch"')
    for name in ("select_interval", "update_interval"):
        if isinstance(getattr(self, name), str) and getattr(self, name) != "auto":
            raise PydanticCustomError("zenflow", '{name} must be an integer or "auto"', {"name": name})
    return self


def zenflow_interval(self: Any) -> Any:
    if isinstance(self.update_interval, int) and self.update_interval < 1:
        raise PydanticCustomError("zenflow", "update_interval must be at least 1")
    return self


_VALIDATORS: Mapping[str, tuple[tuple[str, Callable[..., Any]], ...]] = {
    "zero_optimization.leaf_module": (("before", leaf_names_may_be_one_string),),
    "zero_optimization.zenflow": (("after", zenflow_words), ("after", zenflow_interval)),
}


def _block_errors(error: ValidationError) -> list[BlockError]:
    """pydantic's errors with their paths cut back to the config's own keys, one per path.

    A union reports once per member, with the member's name as an extra path element; the first report is kept.
    """
    found: dict[tuple[str | int, ...], BlockError] = {}
    for item in error.errors(include_url=False, include_context=True, include_input=True):
        path = tuple(part for part in item["loc"] if not (isinstance(part, str) and part in _UNION_MEMBERS))
        found.setdefault(
            path,
            BlockError(
                path=path,
                kind=item["type"],
                message=item["msg"],
                value=item["input"],
                context=dict(item.get("ctx", {})),
            ),
        )
    return list(found.values())


_UNION_MEMBERS = frozenset({"str", "int"})
