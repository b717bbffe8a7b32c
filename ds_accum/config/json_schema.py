"""A JSON Schema of DeepSpeed's config, for editors and for tools that check JSON: made from the table of keys.

    json_schema((0, 19, 8))        # {"$schema": "http://json-schema.org/draft-07/schema#", ...}

What DeepSpeed loads is valid, whether it gets the file itself or from Hugging Face, which fills in "auto". What a
schema can say against a config is said: an unknown key where DeepSpeed refuses one, a value of a wrong type or out of
range, a removed block. In plain dictionaries, where DeepSpeed takes any value, those of the wrong type are refused too:
"false" in quotes counts as true there. A schema knows neither the launch nor what two settings do to each other; that
is the linter's part.

Draft 7 is what editors know best. A form that DeepSpeed takes but nobody should write, such as "yes" for true, is
allowed by a pattern and not by a list of values, so that no editor proposes it.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any

from ds_accum.config.block import BLOCK, Counting, DSAccumBlock, LintSettings
from ds_accum.config.huggingface import FILLED_IN
from ds_accum.config.model import MONITORS
from ds_accum.config.optimizers import deepspeed_schedulers, named_optimizers
from ds_accum.config.schema import Block, Change, Key, Schema, Version, format_version, history, schema_for
from ds_accum.config.support import DTYPE_WORDS

__all__ = ["describe_key", "json_schema"]

JSON = dict[str, Any]

DIALECT = "http://json-schema.org/draft-07/schema#"

_DESCRIPTIONS = FilePath(__file__).parent / "versions" / "descriptions.json"


def json_schema(version: Version) -> JSON:
    """The schema of the config that a release reads, as plain values."""
    schema = schema_for(version)
    release = format_version(version)
    root = _block(schema, schema.block(""))
    root["properties"] |= {
        BLOCK: {"description": _text("", BLOCK), "$ref": f"#/definitions/{DSAccumBlock.__name__}"},
        "$schema": {"type": "string", "description": _text("", "$schema")},
    }
    return {
        "$schema": DIALECT,
        "title": f"DeepSpeed {release} config",
        "description": f"What DeepSpeed {release} reads from a config, or Hugging Face on its behalf.",
        **root,
        "definitions": {**_LENIENT, **_own_definitions()},
    }


def describe_key(version: Version, block: str, key: str) -> str | None:
    """What a key of a block does, with its default and its releases; None if the release does not read it."""
    found = schema_for(version).blocks[block].keys.get(key)
    return None if found is None else _description(schema_for(version).block(block), found)


# --- blocks and keys --------------------------------------------------------------------------------------------------


def _block(schema: Schema, block: Block) -> JSON:
    properties: JSON = {}
    for key in block.keys.values():
        properties[key.name] = _key(schema, block, key)
        if key.name_in_model is not None:
            # DeepSpeed takes the name that the setting has in its code as well.
            properties[key.name_in_model] = {**properties[key.name], "doNotSuggest": True}
    for change in history():
        if change.block == block.name and change.removed and change.key and change.version <= schema.version:
            properties.setdefault(change.key, _removed(change))
    said: JSON = {"type": "object", "properties": properties}
    if block.unknown == "reject":
        # A keyword of DeepSpeed's own constructor of such blocks, no setting.
        properties["strict"] = {"doNotSuggest": True}
        said["additionalProperties"] = False
    return said


def _key(schema: Schema, block: Block, key: Key) -> JSON:
    said: JSON = {"description": _description(block, key)}
    if key.default is not None and key.block is None and key.type != "dtype":
        said["default"] = key.default
    if key.replaced_by is not None:
        said["deprecationMessage"] = f"Use {key.replaced_by}."
    elif (block.name, key.name) == ("", "bfloat16"):
        said["deprecationMessage"] = "Use bf16."
    if key.block is not None:
        return said | _nested(schema, block, key, schema.block(key.block))
    return said | _any_of(_alternatives(schema, block, key))


def _nested(schema: Schema, holder: Block, key: Key, block: Block) -> JSON:
    """A block in a block; in one object with what else may stand there, so that a tool points into the block."""
    said = _block(schema, block)
    types = [said["type"]]
    if holder.kind == "model" or block.name in MONITORS:
        # Dropped before DeepSpeed looks at anything else.
        types.append("string")
        said |= _LENIENT["auto"]
    if (holder.name, key.name) == ("", "zero_optimization"):
        types.append("boolean")  # the format before ZeRO had stages
    if key.null or block.null:
        types.append("null")
    # Where there are several types, editors propose all but the object.
    proposed = {"defaultSnippets": [{"label": "{}", "body": {}}]} if len(types) > 1 else {}
    return said | {"type": types if len(types) > 1 else types[0]} | proposed


def _alternatives(schema: Schema, block: Block, key: Key) -> Iterable[JSON]:
    """The forms that a value may take; a value that fits one of them is valid."""
    if (*block.path, key.name) in FILLED_IN:
        yield _auto(_TYPES.get(key.type, "value"))
    if (block.name, key.name) in _REFINED:
        yield from _REFINED[block.name, key.name](schema.version)
    elif key.type == "any":
        yield {}
    elif block.kind == "mapping":
        yield from _as_it_comes(key)
    else:
        yield from _validated(key)
    if block.kind == "model":
        # Dropped before DeepSpeed looks at anything else.
        yield _lenient("auto")
    if key.null:
        yield {"type": "null"}


def _as_it_comes(key: Key) -> Iterable[JSON]:
    """A value in a plain dictionary, which DeepSpeed uses as it is."""
    if key.type == "literal":
        # Looked up in lower case, all but the one that is checked by itself.
        yield {"enum": list(key.choices)}
        if key.name != "gradient_allreduce_op":
            yield _words(key.choices)
        return
    yield {"type": _TYPES[key.type]}
    if key.type == "bool":
        yield {"type": "integer", "minimum": 0, "maximum": 1}
    elif key.type in ("int", "float"):
        yield _lenient("boolean_value")


def _validated(key: Key) -> Iterable[JSON]:
    """A value that a model of DeepSpeed's validates: the forms that pydantic coerces as well."""
    scales = key.name in ("loss_scale", "loss_scale_window", "min_loss_scale")
    if key.type in ("int", "float"):
        yield {"type": _TYPES[key.type], **_bounds(key)}
        yield _lenient("integer" if key.type == "int" else "number")
        if not scales:
            yield _lenient("boolean_value")
    elif key.type == "bool":
        yield {"type": "boolean"}
        yield _lenient("boolean")
    elif key.type == "int_enum":
        yield {"enum": list(key.choices)}
        yield {"type": "string", "pattern": rf"^\s*\+?({'|'.join(map(str, key.choices))})(\.0*)?\s*$"}
        yield _lenient("boolean_value")
    elif key.type in ("str_enum", "literal"):
        yield {"enum": list(key.choices)}
    elif key.type == "list[literal]":
        yield {"type": "array", "items": {"enum": list(key.choices)}}
    elif key.type == "list[str]":
        yield {"type": "array", "items": {"type": "string"}}
        yield {"type": "string"}
    elif key.type == "str|int":
        yield {"type": "integer"}
        yield _lenient("boolean_value")
    elif key.type == "dtype":
        yield {"not": {}}
    else:
        yield {"type": _TYPES[key.type]}


_TYPES: Mapping[str, str] = {
    "bool": "boolean",
    "int": "integer",
    "float": "number",
    "str": "string",
    "path": "string",
    "list": "array",
    "tuple": "array",
    "dict": "object",
    "dict[str]": "object",
}


def _auto(wanted: str) -> JSON:
    """What Hugging Face fills in: proposed by a snippet, because of several forms editors would name a `const` alone
    in a complaint."""
    article = "an" if wanted[0] in "aeiou" else "a"
    return {
        **_LENIENT["auto"],
        "patternErrorMessage": f'Give {article} {wanted}, or "auto" where Hugging Face fills it in.',
        "defaultSnippets": [{"label": '"auto"', "body": "auto"}],
    }


def _bounds(key: Key) -> JSON:
    names = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
    bounds = {said: getattr(key, name) for name, said in names.items() if getattr(key, name) is not None}
    # A validator of its own in DeepSpeed, not a bound.
    return bounds | ({"minimum": 0} if key.name == "loss_scale" else {})


def _removed(change: Change) -> JSON:
    release = format_version(change.version)
    reason = f": {change.reason}" if change.reason else ""
    if change.refused:
        sentence = f"DeepSpeed {release} removed this and refuses to find it{reason}."
        return {"not": {}, "description": sentence, "errorMessage": sentence, "doNotSuggest": True}
    sentence = f"DeepSpeed ignores this since {release}{reason}."
    return {"description": sentence, "deprecationMessage": sentence, "doNotSuggest": True}


def _any_of(alternatives: Iterable[JSON]) -> JSON:
    """One of several forms, in one object where there is only one."""
    forms = list(alternatives)
    distinct = [form for index, form in enumerate(forms) if form not in forms[:index]]
    if {} in distinct:
        return {}
    # Beside a reference, draft 7 ignores everything.
    return distinct[0] if len(distinct) == 1 and "$ref" not in distinct[0] else {"anyOf": distinct}


# --- what only DeepSpeed's code says about a value --------------------------------------------------------------------


def _batch_size(_: Version) -> list[JSON]:
    return [{"type": "integer", "minimum": 1}]


def _dtype(_: Version) -> list[JSON]:
    return [{"enum": ["fp32", "fp16", "bf16"]}, _words(DTYPE_WORDS, any_case=False)]


def _tag_validation(_: Version) -> list[JSON]:
    return [{"enum": ["WARN", "IGNORE", "FAIL"]}, _words(["WARN", "IGNORE", "FAIL"])]


def _optimizer_type(version: Version) -> list[JSON]:
    spelt = [name for name in _SPELT if name.lower() in named_optimizers(version)]
    return [{"enum": [*spelt, "SGD"]}, {"type": "string"}]


# The names that DeepSpeed knows by themselves, in any case, as its documentation spells them.
_SPELT = ("AdamW", "Adam", "Lamb", "Lion", "Adagrad", "Muon", "OneBitAdam", "OneBitLamb", "ZeroOneAdam")


def _scheduler_type(_: Version) -> list[JSON]:
    return [{"enum": list(deepspeed_schedulers())}, {"type": "string"}]


def _optimizer_params(_: Version) -> list[JSON]:
    betas = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
    forms = {"lr": {}, "betas": betas, "eps": {}, "weight_decay": {}, "torch_adam": {}, "adam_w_mode": {}}
    return [_params("optimizer", forms), {"type": "null"}]


def _scheduler_params(_: Version) -> list[JSON]:
    forms: JSON = {
        name: {} for name in ("warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type", "total_num_steps")
    }
    return [_params("scheduler", forms), {"type": "null"}]


def _params(block: str, forms: Mapping[str, JSON]) -> JSON:
    """Arguments of a constructor that depends on the type: those that nearly all take are proposed, any is allowed."""
    properties = {}
    for name, form in forms.items():
        filled_in = (block, "params", name) in FILLED_IN
        forms_of_it = {"anyOf": [_auto("value"), form]} if filled_in else form
        properties[name] = {"description": _text(f"{block}.params", name), **forms_of_it}
    return {"type": "object", "properties": properties}


_REFINED = {
    ("", "train_batch_size"): _batch_size,
    ("", "train_micro_batch_size_per_gpu"): _batch_size,
    ("", "gradient_accumulation_steps"): _batch_size,
    ("data_types", "grad_accum_dtype"): _dtype,
    ("data_types", "param_dtype"): _dtype,
    ("torch_autocast", "dtype"): _dtype,
    ("checkpoint", "tag_validation"): _tag_validation,
    ("optimizer", "type"): _optimizer_type,
    ("optimizer", "params"): _optimizer_params,
    ("scheduler", "type"): _scheduler_type,
    ("scheduler", "params"): _scheduler_params,
}


# --- forms that DeepSpeed takes and that no editor should propose -----------------------------------------------------


def _words(words: Iterable[str], *, any_case: bool = True) -> JSON:
    """A string that is one of these words, in any case unless said otherwise."""
    said = [_in_any_case(word) if any_case else word.replace(".", r"\.") for word in words]
    return {"type": "string", "pattern": f"^({'|'.join(said)})$"}


def _in_any_case(word: str) -> str:
    return "".join(f"[{letter.upper()}{letter.lower()}]" if letter.isalpha() else letter for letter in word)


def _lenient(name: str) -> JSON:
    return {"$ref": f"#/definitions/{name}"}


_DIGITS = r"[0-9]+(_[0-9]+)*"
_LENIENT: JSON = {
    "auto": {"type": "string", "pattern": "^auto$"},
    "boolean": {
        "anyOf": [
            {"type": "integer", "minimum": 0, "maximum": 1},
            _words(["0", "1", "t", "f", "y", "n", "true", "false", "yes", "no", "on", "off"]),
        ]
    },
    # A boolean, said so that no editor proposes one.
    "boolean_value": {"not": {"type": ["null", "number", "string", "array", "object"]}},
    "integer": {
        "type": "string",
        "pattern": rf"^\s*[+-]?{_DIGITS}(\.0*)?\s*$",
        "patternErrorMessage": "Give an integer.",
    },
    "number": {
        "type": "string",
        "pattern": rf"^\s*[+-]?(({_DIGITS}\.?|({_DIGITS})?\.{_DIGITS}|{_DIGITS}\.)([eE][+-]?[0-9]+)?"
        rf"|{_in_any_case('inf')}({_in_any_case('inity')})?|{_in_any_case('nan')})\s*$",
        "patternErrorMessage": "Give a number.",
    },
}


# --- our own block ----------------------------------------------------------------------------------------------------


def _own_definitions() -> JSON:
    """The models behind the `ds_accum` block, by name, each field described by the docstring below it."""
    schema = DSAccumBlock.model_json_schema(ref_template="#/definitions/{model}")
    definitions: JSON = schema.pop("$defs", {})
    definitions[DSAccumBlock.__name__] = schema
    for model in (DSAccumBlock, Counting, LintSettings):
        for name, text in _field_docstrings(model).items():
            definitions[model.__name__]["properties"][name]["description"] = text
    return definitions


def _field_docstrings(model: type[Any]) -> dict[str, str]:
    """Read from the source: pydantic can do it too, but would at every import of the model."""
    (definition,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, after in itertools.pairwise(definition.body):
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[ast.unparse(field.target)] = " ".join(str(after.value.value).split())
    return found


# --- words ------------------------------------------------------------------------------------------------------------


def _description(block: Block, key: Key) -> str:
    """What the key does, its default, and the release that brought it."""
    said = [_text(block.name, key.name)]
    if key.block is None and key.type != "dtype":
        said.append(f"Default: {'none' if key.default is None else json.dumps(key.default)}.")
    added = next((change for change in _additions() if (change.block, change.key) == (block.name, key.name)), None)
    if added is not None:
        said.append(f"Since DeepSpeed {format_version(added.version)}.")
    return " ".join(filter(None, said))


@lru_cache(maxsize=1)
def _additions() -> tuple[Change, ...]:
    """What came with a known release, latest first."""
    return tuple(change for change in reversed(history()) if change.added)


def _text(block: str, key: str) -> str:
    """The words for a key, empty where there are none."""
    words: str = _texts().get(block, {}).get(key, "")
    return words


@lru_cache(maxsize=1)
def _texts() -> dict[str, dict[str, str]]:
    texts: dict[str, dict[str, str]] = json.loads(_DESCRIPTIONS.read_text("utf-8"))
    return texts
