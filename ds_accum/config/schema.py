"""Every key that DeepSpeed reads, per release: what a block accepts, what it does with an unknown key, each default.

The facts are data (`versions/keys.json` for the newest known release, `versions/history.json` for what changed on the
way there); this module only looks them up. A block is named by its dotted path in the config, the root by the empty
string.

Two kinds of block exist in DeepSpeed, and they fail differently:

* `model`: a pydantic model (`DeepSpeedConfigModel`). Values are coerced or refused, unknown keys are refused, and any
  key whose value is `"auto"` is dropped before validation.
* `mapping`: a plain dictionary read with `dict.get`. Unknown keys are ignored, values are taken as they are, and a
  block that is not a mapping fails with an `AttributeError` or `TypeError` that names no key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any, Literal, NamedTuple

Version = tuple[int, ...]

_DATA = FilePath(__file__).parent / "versions"


class Key(NamedTuple):
    """One key of a block; a tuple, because hundreds of them are made at every start.

    `type` is the name of a validator in `ds_accum.config.pydantic_models` ("int", "bool", "str_enum", ...), "any" where
    DeepSpeed does not look at the value, or "block:NAME" for a nested block. The bounds are pydantic's.
    """

    name: str
    type: str
    default: Any = None
    null: bool = False
    choices: tuple[Any, ...] = ()
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    name_in_model: str | None = None
    replaced_by: str | None = None

    @property
    def block(self) -> str | None:
        """The name of the nested block that this key holds, if it holds one."""
        return self.type[len("block:") :] if self.type.startswith("block:") else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of the config in one release; `null` says that `null` means the same as leaving the block out."""

    name: str
    kind: Literal["model", "mapping"]
    unknown: Literal["reject", "ignore"]
    keys: Mapping[str, Key]
    null: bool = False
    path: tuple[str, ...] = field(init=False)
    """Where the block stands in the config."""
    defaults: Mapping[str, Any] = field(init=False, repr=False, compare=False)
    """What each key is where the config does not set it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", tuple(self.name.split(".")) if self.name else ())
        object.__setattr__(self, "defaults", {name: key.default for name, key in self.keys.items()})


class Change(NamedTuple):
    """What one release changed about one key: it was added, removed, or its default or validation moved.

    The key "" stands for the block itself. `refused` says that the release fails on a removed key's mere presence,
    whatever its value; any other removed key is from then on as unknown as a misspelt one. `before` and `after` hold
    what moved, named as in `Key` and `Block`: the whole key where it was removed, nothing where the change lies in code
    that no attribute describes and only `reason` can tell it.
    """

    version: Version
    block: str
    key: str
    added: bool = False
    removed: bool = False
    refused: bool = False
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    reason: str | None = None

    @property
    def is_in_code_only(self) -> bool:
        """Whether the release began to check the value in code, without anything that an attribute describes."""
        return not (self.added or self.removed or self.before or self.after)


class Schema(NamedTuple):
    """All blocks of one DeepSpeed release."""

    version: Version
    blocks: Mapping[str, Block]

    def block(self, name: str) -> Block:
        return self.blocks[name]

    def is_in_a_model(self, block: Block) -> bool:
        """Whether the block is nested in one that a model validates, and so validated by that model."""
        parent = self.blocks.get(block.name.rpartition(".")[0])
        return bool(block.name) and parent is not None and parent.kind == "model"


def parse_version(text: str) -> Version:
    """`"0.19.8+cpu"` -> `(0, 19, 8)`: the numbers of a release, without pre-release and local parts.

    Raises ValueError when the text does not start with two or more dotted numbers.
    """
    release = text.strip().removeprefix("v").split("+", 1)[0]
    numbers: list[int] = []
    for part in release.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    if len(numbers) < 2:
        raise ValueError(f"{text!r} is not a DeepSpeed version such as 0.19.8")
    # "0.19" is the release 0.19.0, not one that is older than it.
    return tuple(numbers + [0] * (3 - len(numbers)))


def format_version(version: Version) -> str:
    return ".".join(map(str, version))


@lru_cache(maxsize=1)
def _keys_data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((_DATA / "keys.json").read_text("utf-8"))
    return data


@lru_cache(maxsize=1)
def _history_data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((_DATA / "history.json").read_text("utf-8"))
    return data


@lru_cache(maxsize=1)
def newest_version() -> Version:
    """The newest release that the data describes."""
    return parse_version(_keys_data()["newest"])


def known_versions() -> tuple[Version, ...]:
    """The releases that the data was read from, oldest first."""
    return tuple(parse_version(text) for text in _history_data()["versions"])


def stand_in_for(version: Version) -> str | None:
    """The sentence that a release is judged like another one; None for one that the data reaches."""
    newest = newest_version()
    if version > newest:
        age, known = "newer than the newest", newest
    elif version < newest and version < known_versions()[0]:
        age, known = "older than the oldest", known_versions()[0]
    else:
        return None
    asked = f"DeepSpeed {format_version(version)}"
    return f"{asked} is {age} release known here; it is judged like {format_version(known)}"


@lru_cache(maxsize=1)
def history() -> tuple[Change, ...]:
    """Every change between the oldest and the newest known release, oldest first."""
    return tuple(
        Change(**{**entry, "version": parse_version(entry["version"])}) for entry in _history_data()["changes"]
    )


@lru_cache(maxsize=8)
def schema_for(version: Version) -> Schema:
    """What `version` reads: the newest known release with every later change undone.

    A version past the newest known one gets the newest schema, one before the oldest the oldest.
    """
    blocks = dict(_newest_blocks())
    if version < newest_version():
        for change in reversed(history()):
            if change.version > version:
                blocks[change.block] = _undo(blocks[change.block], change)
    return Schema(version=version, blocks=blocks)


@lru_cache(maxsize=1)
def _newest_blocks() -> dict[str, Block]:
    return {name: _block(name, data) for name, data in _keys_data()["blocks"].items()}


def _block(name: str, data: Mapping[str, Any]) -> Block:
    return Block(
        name=name,
        kind=data["kind"],
        unknown=data["unknown"],
        null=data.get("null", False),
        keys={key: _key(key, spec) for key, spec in data["keys"].items()},
    )


def _key(name: str, data: Mapping[str, Any]) -> Key:
    return Key(name=name, **_attributes(data))


def _attributes(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if name == "choices" else value for name, value in data.items()}


def _undo(block: Block, change: Change) -> Block:
    if change.key == "":
        # The block itself changed: how it treats unknown keys, or whether it was a model at all.
        return replace(block, **dict(change.before or {}))
    keys = dict(block.keys)
    if change.added:
        keys.pop(change.key, None)
    elif change.removed:
        # Without a spec no older release read the key either: it was ignored until its presence was refused.
        if change.before is not None:
            keys[change.key] = _key(change.key, change.before)
    elif change.key in keys:
        keys[change.key] = keys[change.key]._replace(**_attributes(change.before or {}))
    return replace(block, keys=keys)


def checks_value(version: Version, block: str, key: str) -> bool:
    """Whether the code of `version` already looks at a key's value in a way that no attribute of `Key` describes.

    True unless the history dates that check to a later release.
    """
    if version >= newest_version():
        return True
    change = next((c for c in history() if c.block == block and c.key == key and c.is_in_code_only), None)
    return change is None or version >= change.version


def last_change(block: str, key: str) -> Change | None:
    """The latest change of one key, to say when it came, went or moved."""
    return next((c for c in reversed(history()) if c.block == block and c.key == key), None)
