"""A config as DeepSpeed reads it: every block with the values that DeepSpeed will really use, and what it refuses.

    config = DeepSpeedConfig.read(values, version=(0, 19, 8))
    config.block("zero_optimization")["stage"]        # 2, also where the file says "2" or nothing at all

Most blocks of most files hold nothing but values of the right type, which pydantic would hand back untouched. Those are
read straight from the key table; pydantic is imported for the others only (`_read_model`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ds_accum.config.schema import Block, Key, Schema, Version, schema_for

Path = tuple[str | int, ...]


class BlockError(NamedTuple):
    """Why a block was refused: `path` is relative to the block, `kind` is pydantic's error type."""

    path: Path
    kind: str
    message: str
    value: Any
    context: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockReading:
    """One block as read.

    `path` is where the file holds it, `raw` what it holds there ({} where it holds nothing). `values` are the effective
    values, defaults filled in; the keys that `errors` refuses are missing from it. `is_mapping` is false where the file
    holds something else than a mapping, which DeepSpeed can't read at all.
    """

    block: Block
    path: Path
    raw: Any
    values: Mapping[str, Any]
    errors: tuple[BlockError, ...] = ()
    present: bool = True
    is_mapping: bool = True

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def written(self, key: str) -> bool:
        """Whether the file itself gives the key a value that DeepSpeed looks at (it drops "auto" in some blocks)."""
        return self.present and self.is_mapping and key in self.raw and not _is_dropped(self.block, self.raw[key])


# DeepSpeed reads these four through one model of its own, which drops a block whose value is "auto".
MONITORS = frozenset({"tensorboard", "wandb", "csv_monitor", "comet"})


@dataclass(frozen=True, slots=True, eq=False)
class DeepSpeedConfig:
    """The whole config, block by block; a block is validated when it is first asked for."""

    values: Mapping[str, Any]
    schema: Schema
    _readings: dict[str, BlockReading] = field(default_factory=dict)

    @classmethod
    def read(cls, values: Mapping[str, Any], *, version: Version) -> DeepSpeedConfig:
        """`values` as the file gives them; `version` is the DeepSpeed release that will read them."""
        return cls(values, schema_for(version))

    @property
    def top(self) -> BlockReading:
        """The keys of the root."""
        return self.block("")

    def block(self, name: str) -> BlockReading:
        """The reading of one block, by its dotted path."""
        reading = self._readings.get(name)
        if reading is None:
            reading = self._readings[name] = self._read(self.schema.block(name))
        return reading

    def present(self) -> Iterator[BlockReading]:
        """The readings of the blocks that the file holds, the root first."""
        for name, block in self.schema.blocks.items():
            if not block.path or block.path[0] in self.values or name == "bf16":
                reading = self.block(name)
                if reading.present:
                    yield reading

    @property
    def zero_stage(self) -> int | None:
        """0 to 3, or None where the file gives a stage that DeepSpeed refuses."""
        stage: int | None = self.block("zero_optimization").get("stage")
        return stage

    def enabled(self, name: str) -> bool:
        """Whether a block with an `enabled` switch is on (off where its value is refused)."""
        return bool(self.block(name).get("enabled"))

    def _read(self, block: Block) -> BlockReading:
        path, raw = self._locate(block)
        if path is None or (raw is None and block.null and path == block.path):
            return BlockReading(block=block, path=block.path, raw={}, values=block.defaults, present=False)
        if not isinstance(raw, dict):
            return BlockReading(block=block, path=path, raw=raw, values=block.defaults, is_mapping=False)
        if block.kind == "mapping":
            return BlockReading(block=block, path=path, raw=raw, values={**block.defaults, **raw})
        return _read_model(self.schema, block, path, raw)

    def _locate(self, block: Block) -> tuple[Path | None, Any]:
        """Where the file holds the block, and what it holds there; (None, None) where DeepSpeed sees nothing."""
        if block.name == "bf16" and self.values.get("bf16") is None:
            # The old spelling counts only where the new one is absent or null (precision_config.py).
            if "bfloat16" in self.values:
                return ("bfloat16",), self.values["bfloat16"]
            return None, None
        value: Any = self.values
        for depth, part in enumerate(block.path):
            if not isinstance(value, dict) or part not in value:
                return None, None
            parent = self.schema.blocks.get(".".join(block.path[:depth]))
            value = value[part]
            if value == "auto" and (block.name in MONITORS or (parent is not None and parent.kind == "model")):
                return None, None
        if block.name == "zero_optimization" and isinstance(value, bool):
            # The format before ZeRO had stages: true is stage 1 (`read_zero_config_deprecated`, zero/config.py).
            size = self.values.get("allgather_size", 500_000_000)
            value = {"stage": 1, "allgather_bucket_size": size} if value else {"stage": 0}
        return block.path, value


def _read_model(schema: Schema, block: Block, path: Path, raw: Mapping[str, Any]) -> BlockReading:
    plain = _plain_values(schema, block, raw)
    if plain is not None:
        return BlockReading(block=block, path=path, raw=raw, values=plain)
    from ds_accum.config.pydantic_models import validate

    values, errors = validate(schema, block, dict(raw))
    return BlockReading(block=block, path=path, raw=raw, values=values, errors=errors)


def _is_dropped(block: Block, value: Any) -> bool:
    return block.kind == "model" and isinstance(value, str) and value == "auto"


# --- values that pydantic would hand back untouched -------------------------------------------------------------------

# Blocks with a validator over more than one key: always asked.
_NEVER_PLAIN = frozenset({"zero_optimization.zenflow", "zero_optimization.leaf_module"})


def _plain_values(schema: Schema, block: Block, raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """The block's values if each is already exactly what its model would make of it, else None.

    Accepts less than pydantic does, never more: pydantic is asked about everything that is not plain.
    """
    if block.name in _NEVER_PLAIN:
        return None
    values = dict(block.defaults)
    for name, value in raw.items():
        key = block.keys.get(name)
        if key is None or key.name_in_model in raw:
            return None
        if _is_dropped(block, value):
            continue
        if not _is_plain(schema, key, value):
            return None
        values[name] = value
    return values


def _is_plain(schema: Schema, key: Key, value: Any) -> bool:
    if value is None:
        return key.null
    if key.block is not None:
        return isinstance(value, dict) and _plain_values(schema, schema.block(key.block), value) is not None
    kind = type(value)
    if key.type == "bool":
        return kind is bool
    if key.type == "int":
        return kind is int and abs(value) < 2**63 and _is_within(key, value)
    if key.type == "float":
        # A negative loss scale is the business of its own validator.
        return (kind is float or kind is int) and 0 <= value < 1e300 and _is_within(key, value)
    if key.type == "str":
        return kind is str
    if key.type == "int_enum":
        return kind is int and value in key.choices
    if key.type in ("str_enum", "literal"):
        return kind is str and value in key.choices
    return False


def _is_within(key: Key, value: float) -> bool:
    return (
        (key.ge is None or value >= key.ge)
        and (key.gt is None or value > key.gt)
        and (key.le is None or value <= key.le)
        and (key.lt is None or value < key.lt)
    )
