"""World sizes as people write them: a number of ranks, or several to check at once, as in `8,64` or `1,2,8-16`."""

from __future__ import annotations

import re

__all__ = ["parse_world_sizes"]

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
