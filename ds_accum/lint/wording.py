"""How messages say the things of a config: a path, a value, a list of choices."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeGuard

from ds_accum.config.document import Path

# A value that is longer than this is cut: the excerpt shows the rest.
LONGEST_VALUE = 60


def dotted(path: Path) -> str:
    """`("zero_optimization", "stage")` -> `zero_optimization.stage`; a list index in brackets."""
    said = ""
    for part in path:
        said += f"[{part}]" if isinstance(part, int) else f".{part}" if said else str(part)
    return said


def shown(value: Any) -> str:
    """A value as the file would write it, on one line and not too long."""
    if type(value) is int:
        return number(value)
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except ValueError:
        # An integer of more digits than Python prints, inside of something else.
        text = "..."
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."


def number(value: float) -> str:
    """A size that may be a fraction: "8", "2.66667"."""
    if not isinstance(value, int) and not value.is_integer():
        return f"{value:g}"
    from ds_accum.batch.wording import show  # with all of `batch`, which a clean config does without

    return show(int(value))


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value can be computed with and said as a `number`: no boolean, nothing infinite."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def kind_of(value: Any) -> str:
    """What a value is, with its article: "a string"."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    for kinds, name in (((int, float), "a number"), (str, "a string"), (list, "a list"), (dict, "an object")):
        if isinstance(value, kinds):
            return name
    return f"a {type(value).__name__}"


def what(value: Any) -> str:
    """A wrong value with its kind: `the string "5e8"`, `the boolean true`, `null`."""
    return "null" if value is None else f"the {kind_of(value).split(' ', 1)[1]} {shown(value)}"


def one_of(choices: Iterable[Any]) -> str:
    """`"fp16", "bf16" or "fp32"`."""
    said = [shown(choice) for choice in choices]
    return " or ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)
