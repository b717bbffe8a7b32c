"""Attributes of DeepSpeed's objects, replaced for as long as a block runs and then exactly as before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["overriding"]

_ABSENT = object()


@contextmanager
def overriding(target: object, **values: Any) -> Iterator[None]:
    """Sets attributes of one instance; afterwards those that only its class had are the class's again."""
    own = vars(target)
    saved = {name: own.get(name, _ABSENT) for name in values}
    own_before = {name: value for name, value in saved.items() if value is not _ABSENT}
    for name, value in values.items():
        setattr(target, name, value)
    try:
        yield
    finally:
        for name in values:
            if name in own_before:
                setattr(target, name, own_before[name])
            else:
                # What the block itself has removed is not missed.
                own.pop(name, None)
