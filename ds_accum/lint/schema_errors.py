"""What DeepSpeed's own block models refuse, sorted by the rule that gives it its sentence.

The errors come from the pydantic models (`ds_accum.config.model`); each has exactly one owner here, so that nothing
that a model refuses goes unreported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from ds_accum.config.document import Path
from ds_accum.config.model import BlockError
from ds_accum.config.schema import Block, Key
from ds_accum.lint.context import LintContext

Owner = Literal["unknown-key", "out-of-range", "invalid-choice", "block-not-an-object", "wrong-type", "loss-scale"]

_OWNERS: dict[str, Owner] = {
    "extra_forbidden": "unknown-key",
    "greater_than": "out-of-range",
    "greater_than_equal": "out-of-range",
    "less_than": "out-of-range",
    "less_than_equal": "out-of-range",
    "enum": "invalid-choice",
    "literal_error": "invalid-choice",
    "zenflow": "invalid-choice",
    "loss_scale": "loss-scale",
    "model_type": "block-not-an-object",
    "model_attributes_type": "block-not-an-object",
}


class SchemaError(NamedTuple):
    """One refusal: its whole path, the value there, the key's entry in the table (None for an unknown key)."""

    owner: Owner
    path: Path
    value: Any
    block: Block
    key: Key | None
    error: BlockError


def schema_errors(context: LintContext, owner: Owner) -> Iterator[SchemaError]:
    """The refusals of all blocks that belong to one rule."""
    for reading in context.config.present():
        block = reading.block
        if not reading.errors or context.config.schema.is_in_a_model(block):
            continue
        for error in reading.errors:
            found = _OWNERS.get(error.kind, "wrong-type")
            if found != owner:
                continue
            holder = _holder(context, block, error.path)
            yield SchemaError(
                owner=found,
                path=(*reading.path, *error.path),
                value=error.value,
                block=holder,
                key=_key(holder, error.path[-1] if error.path else None),
                error=error,
            )


def _holder(context: LintContext, block: Block, path: Path) -> Block:
    """The block that holds the key at a path relative to `block`."""
    for part in path[:-1]:
        nested = block.keys.get(str(part))
        if nested is None or nested.block is None:
            break
        block = context.config.schema.block(nested.block)
    return block


def _key(block: Block, name: str | int | None) -> Key | None:
    found = block.keys.get(str(name))
    return found or next((key for key in block.keys.values() if key.name_in_model == name), None)
