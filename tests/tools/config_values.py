"""What a variable may hold while DeepSpeed's source is followed: a part of the config, a constant, code, or unknown."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

KeyPath = tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """The parts of the config that a value may be: usually one, two for `bf16` and its old name `bfloat16`."""

    paths: tuple[KeyPath, ...]

    def at(self, key: str) -> Part:
        return Part(tuple((*path, key) for path in self.paths))


@dataclass(frozen=True)
class Known:
    """A constant."""

    value: Any


@dataclass
class Table:
    """A dictionary that DeepSpeed wrote down itself."""

    entries: dict[Any, Value]


@dataclass(frozen=True)
class Items:
    """A value out of `part.items()`: any key's."""

    part: Part


@dataclass(frozen=True)
class Code:
    """A function or a class, with the object that it is bound to if it is a method."""

    module: Module
    node: ast.FunctionDef | ast.ClassDef
    owner: Thing | None = None

    @property
    def class_node(self) -> ast.ClassDef:
        assert isinstance(self.node, ast.ClassDef), f"{self.node.name} of {self.module.dotted} is no class"
        return self.node


@dataclass
class Thing:
    """An object of one of DeepSpeed's classes."""

    made_of: Code
    attributes: dict[str, Value] = field(default_factory=dict)


Value = Part | Known | Table | Items | Code | Thing | None
MISSING = Known("no default")


@dataclass(eq=False)
class Module:
    """One source file; `names` maps what it defines to the statement that does."""

    dotted: str
    package: str
    names: dict[str, ast.stmt]
    stars: list[ast.ImportFrom]


@dataclass
class Scope:
    module: Module
    names: dict[str, Value] = field(default_factory=dict)
    returned: list[Value] = field(default_factory=list)


_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
}


def merge(one: Value, other: Value) -> Value:
    """What is known of a value that two branches give: a part of the config counts most, then what is known at all."""
    if isinstance(one, Part) and isinstance(other, Part):
        return Part(tuple(dict.fromkeys(one.paths + other.paths)))
    ranks: tuple[type[Any], ...] = (Part, Table, Thing, Code, Known)
    return next((value for rank in ranks for value in (one, other) if isinstance(value, rank)), None)


def arithmetic(kind: ast.operator, left: Value, right: Value) -> Value:
    known = isinstance(left, Known) and isinstance(right, Known) and type(kind) in _ARITHMETIC
    return Known(_ARITHMETIC[type(kind)](left.value, right.value)) if known else None  # type: ignore[union-attr]


def python_value(value: Value) -> Any:
    """The Python value of what is known; None for what is not."""
    if isinstance(value, Table):
        return {key: python_value(entry) for key, entry in value.entries.items()}
    return value.value if isinstance(value, Known) else None
