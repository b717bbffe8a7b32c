"""What a path leads to in values that may be anything: `value_at(values, ("zero_optimization", "stage"))`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ds_accum.config.document import Path

__all__ = ["NOTHING", "mapping_at", "value_at"]

NOTHING = object()
"""What there is at a path that leads nowhere, for whoever tells that from a null."""


def value_at(value: Any, path: Path, default: Any = None) -> Any:
    """The value at a path below another one, `default` where a key is missing or something else than an object."""
    for part in path:
        is_there = part in value if isinstance(value, Mapping) else isinstance(value, list) and _is_index(part, value)
        if not is_there:
            return default
        value = value[part]
    return value


def mapping_at(value: Any, path: Path = ()) -> Mapping[Any, Any]:
    """The object at a path; an empty one where there is none, or something else."""
    found = value_at(value, path)
    return found if isinstance(found, Mapping) else {}


def _is_index(part: str | int, values: list[Any]) -> bool:
    return isinstance(part, int) and 0 <= part < len(values)
