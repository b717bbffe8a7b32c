"""The smallest config that still shows a disagreement: what a failing seed is reported as.

    reduce(text, launch, fails)      the text and the launch, with all that does not matter taken away

A config that fails as plain JSON too is reduced as a tree: keys and items go, then objects and lists become simple
values. Only where the spelling itself matters is the text cut, first by lines, then by characters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import hjson

from ds_accum.config.launch import Launch

Fails = Callable[[str, Launch], bool]
"""Whether a text and a launch show the same failure."""


def reduce(text: str, launch: Launch, fails: Fails) -> tuple[str, Launch]:
    """Raises ValueError if the failure is not there to begin with."""
    if not fails(text, launch):
        raise ValueError("there is no failure to reduce")
    try:
        plain = json.dumps(hjson.loads(text, object_pairs_hook=dict))
    except (ValueError, RecursionError):
        plain = None
    if plain is not None and fails(plain, launch):
        text = _reduce_tree(json.loads(plain), lambda values: fails(json.dumps(values), launch))
    else:
        text = _reduce_text(text, lambda shorter: fails(shorter, launch))
    return text, _reduce_launch(launch, lambda simpler: fails(text, simpler))


def _reduce_launch(launch: Launch, fails: Callable[[Launch], bool]) -> Launch:
    plain = replace(
        launch,
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        context_parallel_size=1,
        sequence_parallel_size=1,
        expert_parallel_size=1,
    )
    launch = plain if plain != launch and fails(plain) else launch
    if launch.model_parallel_size == 1 and launch.world_size is not None:
        for world_size in range(1, min(launch.world_size, 9)):
            if fails(replace(launch, world_size=world_size)):
                return replace(launch, world_size=world_size)
    return launch


def _reduce_tree(values: Any, fails: Callable[[Any], bool]) -> str:
    smaller: Any = values
    while smaller is not None:
        values = smaller
        smaller = next((candidate for candidate in _simpler(values) if fails(candidate)), None)
    return json.dumps(values)


def _simpler(value: Any) -> Iterator[Any]:
    """Everything that is one step simpler than a value, the greatest steps first."""
    if isinstance(value, dict):
        for key in value:
            yield {name: item for name, item in value.items() if name != key}
        for key, held in value.items():
            for simpler in _simpler(held):
                yield {**value, key: simpler}
    elif isinstance(value, list):
        for at in range(len(value)):
            yield value[:at] + value[at + 1 :]
        for at, held in enumerate(value):
            for simpler in _simpler(held):
                yield [*value[:at], simpler, *value[at + 1 :]]
    elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) > 2:
        yield 2 if value > 0 else -1


def _reduce_text(text: str, fails: Callable[[str], bool]) -> str:
    lines = _reduce_pieces(text.splitlines(keepends=True), fails)
    return "".join(_reduce_pieces(list("".join(lines)), fails))


def _reduce_pieces(pieces: list[str], fails: Callable[[str], bool]) -> list[str]:
    size = max(len(pieces) // 2, 1)
    while pieces:
        kept = _without_chunks(pieces, size, lambda rest: fails("".join(rest)))
        if len(kept) == len(pieces) and size == 1:
            break
        pieces, size = kept, max(size // 2, 1)
    return pieces


def _without_chunks(pieces: list[str], size: int, fails: Callable[[list[str]], bool]) -> list[str]:
    at = 0
    while at < len(pieces):
        rest = pieces[:at] + pieces[at + size :]
        if fails(rest):
            pieces = rest
        else:
            at += size
    return pieces
