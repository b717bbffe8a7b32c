"""The values that a change asks for: what the text must hold once it is made, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ds_accum.config.document import Path
from ds_accum.config.paths import NOTHING, value_at
from ds_accum.lint.fix import Change, RemoveKey, RenameKey, SetValue

__all__ = ["NotApplicable", "changed", "is_same"]


class NotApplicable(Exception):
    """The config does not hold what the change is about, or holds already what it would add."""


def changed(value: Any, change: Change) -> Any:
    """The root value after a change; what is not changed is shared with the root before. Raises NotApplicable."""
    if isinstance(change, SetValue):
        return _set(value, change.at, change.value)
    if isinstance(change, RemoveKey):
        return _remove(value, change.at)
    if isinstance(change, RenameKey):
        return _in_parent(value, change.at, lambda parent: _renamed(parent, change.at[-1], change.name))
    if value_at(value, change.to, NOTHING) is not NOTHING:
        raise NotApplicable
    return _remove(_set(value, change.to, value_at(value, change.at)), change.at)


def is_same(left: Any, right: Any) -> bool:
    """Equal in values, kinds and order of keys. 8.0 is the same as 8: Hjson reads one as the other."""
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(is_same(item, right[key]) for key, item in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(is_same, left, right))
    if _is_number(left) and _is_number(right):
        return bool(left == right or (math.isnan(left) and math.isnan(right)))
    return type(left) is type(right) and bool(left == right)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _in_parent(value: Any, path: Path, change: Callable[[Any], Any], depth: int = 0) -> Any:
    """A copy of the root in which the holder of `path` is changed."""
    if depth == len(path) - 1:
        return change(value)
    part = path[depth]
    if value_at(value, (part,), NOTHING) is NOTHING:
        raise NotApplicable
    copy = value.copy()
    copy[part] = _in_parent(value[part], path, change, depth + 1)
    return copy


def _set(value: Any, path: Path, new: Any) -> Any:
    if not path:
        raise NotApplicable
    known = 0
    while known < len(path) and value_at(value, path[: known + 1], NOTHING) is not NOTHING:
        known += 1
    for part in reversed(path[known + 1 :]):
        new = {part: new}
    return _in_parent(
        value, path[: known + 1] if known < len(path) else path, lambda parent: _with(parent, path, known, new)
    )


def _with(parent: Any, path: Path, known: int, new: Any) -> Any:
    if known == len(path):
        copy = parent.copy()
        copy[path[-1]] = new
        return copy
    if not isinstance(parent, dict) or not isinstance(path[known], str):
        raise NotApplicable
    return {**parent, path[known]: new}


def _remove(value: Any, path: Path) -> Any:
    def without(parent: Any) -> Any:
        if not isinstance(parent, dict) or path[-1] not in parent:
            raise NotApplicable
        return {key: item for key, item in parent.items() if key != path[-1]}

    return _in_parent(value, path, without)


def _renamed(parent: Any, old: str | int, new: str) -> Any:
    if not isinstance(parent, dict) or old not in parent or new in parent:
        raise NotApplicable
    return {new if key == old else key: item for key, item in parent.items()}
