"""`--vary key=a,b`: which values a config key takes in turn, and the product of several such keys."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ds_accum.errors import UsageError

__all__ = ["Variation", "combinations", "parse_variation", "set_values", "short_names"]

_EXAMPLE = "write a dotted key and its values, as in zero_optimization.overlap_comm=true,false"

# Keys that are varied otherwise, or that would change what all the variants are compared with.
_ELSEWHERE = {
    "zero_optimization.stage": "--stages varies the stage",
    "train_batch_size": "the global batch is the same in all variants; --splits cuts it differently",
    "train_micro_batch_size_per_gpu": "--splits varies micro batch and accumulation together",
    "gradient_accumulation_steps": "--splits varies micro batch and accumulation together",
    "gradient_clipping": "all variants are compared with one truth, clipped at one norm: compare once for each",
    "optimizer": "every variant gets the same optimizer: --optimizer and --learning-rate choose it",
    "scheduler": "no variant has a scheduler: the learning rate stays what --learning-rate says",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """One key, by its dotted path from the root of the config, and the values that it takes."""

    key: str
    values: tuple[Any, ...]


def parse_variation(text: str) -> Variation:
    """`"a.b=1,x"` -> key "a.b" with the values 1 and "x": JSON where a value parses as such, else a string.

    A comma inside a list, an object or a quoted string separates nothing. Raises UsageError.
    """
    key, equals, listed = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise UsageError(f"--vary {text!r} is no key=value,value", remedy=_EXAMPLE)
    for taken, remedy in _ELSEWHERE.items():
        if key == taken or key.startswith(f"{taken}."):
            raise UsageError(f"--vary can't vary {key}", remedy=remedy)
    values = [_value(part.strip()) for part in _split(listed)]
    if "" in values:
        raise UsageError(f"--vary {text!r} holds an empty value", remedy=_EXAMPLE)
    for place, value in enumerate(values):
        if any(_same(value, other) for other in values[:place]):
            raise UsageError(f"--vary {text!r} holds {json.dumps(value)} twice", remedy="give each value once")
    return Variation(key=key, values=tuple(values))


def combinations(variations: Sequence[Variation]) -> Iterator[dict[str, Any]]:
    """Every choice of one value a key, in the order given, the last key moving fastest; one empty choice without keys.

    Raises UsageError where one key is given twice.
    """
    keys = [variation.key for variation in variations]
    for key in keys:
        if keys.count(key) > 1:
            raise UsageError(f"--vary gives {key} twice", remedy=f"list all its values in one: {key}=a,b,c")
    for choice in itertools.product(*(variation.values for variation in variations)):
        yield dict(zip(keys, choice, strict=True))


def set_values(config: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Sets each dotted key in the config, making the blocks on its way; a block that is no object is replaced."""
    for key, value in values.items():
        block = config
        *parents, last = key.split(".")
        for parent in parents:
            # Copies: the base config is shared by all variants.
            block[parent] = dict(block[parent]) if isinstance(block.get(parent), Mapping) else {}
            block = block[parent]
        block[last] = value


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """What each key is called in a variant's name: its last part, or the whole where two keys end alike."""
    lasts = [key.rpartition(".")[2] for key in keys]
    return {key: key if lasts.count(last) > 1 else last for key, last in zip(keys, lasts, strict=True)}


def _split(text: str) -> Iterator[str]:
    """The parts between the commas that stand outside of brackets and quotes."""
    depth, quoted, escaped, start = 0, False, False, 0
    for place, character in enumerate(text):
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character == "," and depth <= 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _same(one: Any, other: Any) -> bool:
    """Whether JSON can't tell them apart: in Python 1 equals true."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
