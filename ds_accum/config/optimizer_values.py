"""Which values an optimizer or a scheduler takes for its parameters, as its constructor and its first step check them.

    kind = kinds_of("AdamW", version=(0, 19, 8))["lr"]
    kind.accepts("1e-3"), kind.wanted        # False, "a number that is at least 0"

The kinds are data (`versions/optimizer_values.json`), by class and parameter; a test tries every one of them against
the installed DeepSpeed and torch. A parameter that is not listed takes anything, or nobody looks at it before training.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any, Literal, NamedTuple

from ds_accum.config.schema import Version, parse_version

__all__ = ["Moment", "ValueKind", "kinds_of"]

_DATA = FilePath(__file__).parent / "versions" / "optimizer_values.json"

Moment = Literal["start", "first step"]
"""When a wrong value is found: while the object is built, or at the first optimizer step."""

Type = Literal["number", "float", "integer", "numeral", "pair", "choice", "switch", "off", "no container"]


class ValueKind(NamedTuple):
    """One kind of value.

    `number` counts booleans, as Python's comparisons do; `numeral` is a number or a string that `float` reads; `float`
    is a number that is not written as an integer; `pair` is a list whose first two items are of the kinds `each`, and
    with `exact` has no others; `switch` is what converts to a C++ bool; `off` is anything that counts as false. With
    `null` the value may be null. With `by_group` it may also be a list, one item for each parameter group, which only
    the script knows: a list is then accepted whatever it holds.
    """

    type: Type
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    ne: float | None = None
    null: bool = False
    by_group: bool = False
    exact: bool = False
    each: tuple[ValueKind, ...] = ()
    choices: tuple[str, ...] = ()

    def accepts(self, value: Any, *, old_torch: bool = False) -> bool:
        """Whether a value is of this kind. `old_torch`: torch before 2.6 takes an integer where a float is wanted."""
        if (value is None and self.null) or (isinstance(value, list) and self.by_group):
            return True
        if self.type == "off":
            return not value
        if self.type == "switch":
            return value is None or isinstance(value, int | float)
        if self.type == "no container":
            return not isinstance(value, list | dict)
        if self.type == "choice":
            return isinstance(value, str) and value in self.choices
        if self.type == "pair":
            return (
                isinstance(value, list)
                and (len(value) == 2 if self.exact else len(value) >= 2)
                and all(kind.accepts(item, old_torch=old_torch) for kind, item in zip(self.each, value, strict=False))
            )
        return self._accepts_number(value, old_torch)

    def _accepts_number(self, value: Any, old_torch: bool) -> bool:
        if self.type == "numeral" and isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                return False
        if self.type == "float" and isinstance(value, int) and not old_torch:
            return False
        return (
            isinstance(value, int if self.type == "integer" else int | float)
            and (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
            and (self.ne is None or value != self.ne)
        )

    @property
    def wanted(self) -> str:
        """What a value of this kind is, after "must be"."""
        or_null = " or null" if self.null else ""
        bounds = f" that is {self._bounds}" if self._bounds else ""
        if self.type == "pair":
            return self._wanted_pair
        if self.type == "choice":
            said = [json.dumps(choice) for choice in self.choices]
            return f"{', '.join(said[:-1])} or {said[-1]}{or_null}"
        return {
            "off": "false",
            "switch": "true or false",
            "no container": "a single value",
            "number": f"a number{bounds}",
            "float": f"a number with a decimal point{bounds}",
            "integer": f"an integer{bounds}",
            "numeral": f"a number{bounds}",
        }[self.type] + or_null

    @property
    def _wanted_pair(self) -> str:
        first, second = self.each
        noun = "numbers with a decimal point" if first.type == "float" else "numbers"
        if not first._bounds:
            return f"a list of two {noun}"
        if first._bounds == second._bounds:
            return f"a list of two {noun}, each {first._bounds}"
        return f"a list of two {noun}, the first {first._bounds}, the second {second._bounds}"

    @property
    def _bounds(self) -> str:
        words = {"ge": "at least", "gt": "greater than", "le": "at most", "lt": "less than", "ne": "not"}
        return " and ".join(
            f"{word} {bound:g}" for name, word in words.items() if (bound := getattr(self, name)) is not None
        )


@lru_cache(maxsize=64)
def kinds_of(class_name: str, *, version: Version, moment: Moment = "start") -> Mapping[str, ValueKind]:
    """What a class wants of its parameters in a DeepSpeed release; one that is not among them takes anything."""
    found = {}
    for parameter, entry in _data()[moment].get(class_name, {}).items():
        name = entry if isinstance(entry, str) else _since(entry, version)
        if name is not None:
            found[parameter] = _kind(_data()["kinds"][name])
    return found


def _since(entries: Mapping[str, str], version: Version) -> str | None:
    """The entry of the latest release up to `version`; "0" stands for the oldest."""
    name = None
    for release, entry in entries.items():
        if release == "0" or parse_version(release) <= version:
            name = entry
    return name


def _kind(spec: Mapping[str, Any]) -> ValueKind:
    attributes = dict(spec)
    attributes["each"] = tuple(_kind(item) for item in spec.get("each", ()))
    attributes["choices"] = tuple(spec.get("choices", ()))
    return ValueKind(**attributes)


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(_DATA.read_text("utf-8"))
    return data
