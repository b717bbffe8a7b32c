"""Fixes that more than one rule gives. Each is None where it can't be said with confidence.

A fix is safe where DeepSpeed could not have started with the config as it is, or where training does not depend on what
changes. Where a mistake has several remedies and only the author can choose, the one that is offered is not safe.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container
from typing import Any

from ds_accum.config.document import Path
from ds_accum.lint.fix import Fix, MoveKey, RemoveKey, RenameKey, SetValue
from ds_accum.lint.wording import LONGEST_VALUE, dotted, shown

__all__ = ["moved", "number_in", "removed", "renamed", "replaced", "without_quotes"]

_NUMBER = r"[-+]?(?:[0-9]{1,30}(?:_[0-9]{1,30}){0,5}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?"
# As alike as a word and itself with one letter less, added or exchanged; what is further off is a guess.
_ALIKE = 0.85


def number_in(text: Any) -> int | float | None:
    """The finite number that a string holds, as Hjson would read it; underscores and blanks around it do not count."""
    if not isinstance(text, str) or not re.fullmatch(_NUMBER, text.strip()):
        return None
    digits = text.strip().replace("_", "")
    try:
        return int(digits)
    except ValueError:
        number = float(digits)
    if math.isinf(number):
        return None
    return int(number) if number.is_integer() and abs(number) < 1e10 else number


def without_quotes(
    at: Path,
    value: Any,
    *,
    integer: bool = False,
    accepts: Callable[[Any], bool] | None = None,
) -> Fix | None:
    """A number that stands there as a string; `accepts` says whether it will do, and may take lists of numbers."""
    new: Any = number_in(value)
    if isinstance(value, list) and accepts is not None:
        new = [number_in(item) if isinstance(item, str) else item for item in value]
    if new is None or new == value or (integer and isinstance(new, float) and not new.is_integer()):
        return None
    if accepts is not None and not accepts(new):
        return None
    return Fix(f"write {_cut(dotted(at))} without quotes", (SetValue(at, new),), is_safe=True)


def replaced(at: Path, value: Any, *, is_safe: bool = True) -> Fix:
    """Another value."""
    return Fix(f"set {_cut(dotted(at))} to {shown(value)}", (SetValue(at, value),), is_safe)


def removed(at: Path, *, is_safe: bool = True) -> Fix:
    return Fix(f"remove {_cut(dotted(at))}", (RemoveKey(at),), is_safe)


def renamed(at: Path, name: str, *, beside: Container[Any], is_synonym: bool = False) -> Fix | None:
    """A key that is misspelt, or another tool's word; not if it is a guess, or if `beside` it is the right one too."""
    from difflib import SequenceMatcher  # a slow import, needed only where something is misspelt

    word = str(at[-1]).lower().replace("-", "_")
    if name in beside or not (is_synonym or SequenceMatcher(None, word, name.lower()).ratio() >= _ALIKE):
        return None
    return Fix(f"rename {_cut(str(at[-1]))} to {name}", (RenameKey(at, name),), is_safe=True)


def moved(at: Path, to: Path, *, is_safe: bool = True) -> Fix:
    """The same setting where DeepSpeed looks for it."""
    where = "the root" if len(to) == 1 else dotted(to[:-1])
    name = f" as {to[-1]}" if to[-1] != at[-1] else ""
    return Fix(f"move {at[-1]} to {where}{name}", (MoveKey(at, to),), is_safe)


def _cut(name: str) -> str:
    """A key of the author's own may be of any length."""
    return name if len(name) <= LONGEST_VALUE else f"{name[: LONGEST_VALUE - 3]}..."
