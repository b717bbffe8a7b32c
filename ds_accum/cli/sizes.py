"""Sizes on the command line: a number of ranks, or several to check at once, as in `8,64` or `1,2,8-16`."""

from __future__ import annotations

import re

import click

__all__ = ["parse_world_sizes", "read_size", "read_world_sizes"]

# A config is checked once for each.
MOST_WORLD_SIZES = 1_000

_PART = re.compile(r"(\d{1,9})(?:\s*-\s*(\d{1,9}))?", re.ASCII)


def parse_world_sizes(text: str) -> tuple[int, ...]:
    """The world sizes in ascending order, each once. Raises ValueError that says what is wrong with which part."""
    sizes: set[int] = set()
    for part in map(str.strip, text.split(",")):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is neither a number of ranks nor a range such as 8-16")
        first, last = int(match[1]), int(match[2] or match[1])
        if first < 1:
            raise ValueError(f"{part!r}: a world has at least 1 rank")
        if last < first:
            raise ValueError(f"{part!r} ends before it begins")
        # The length of the range first: a set of a billion numbers is not built to be counted.
        if last - first >= MOST_WORLD_SIZES or len(sizes | {*range(first, last + 1)}) > MOST_WORLD_SIZES:
            raise ValueError(f"more than {MOST_WORLD_SIZES:,} world sizes")
        sizes.update(range(first, last + 1))
    return tuple(sorted(sizes))


def read_world_sizes(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    """The callback of an option that takes several world sizes."""
    try:
        return None if text is None else parse_world_sizes(text)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def read_size(context: click.Context, parameter: click.Parameter, size: int | None) -> int | None:
    """The callback of an option that takes one size of at least 1."""
    if size is not None and size < 1:
        raise click.BadParameter(f"must be at least 1, not {size}", context, parameter)
    return size
