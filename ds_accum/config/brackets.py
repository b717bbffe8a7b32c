"""Which bracket lacks its partner, when the text ends with one still open.

Brackets pair up from the inside, so the one left over at the end is the outermost, wherever the missing one belongs.
Indentation knows better: the first closing bracket on a line of its own that is not indented like the line of its
partner was meant for another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["misindented_pair"]

_FARTHEST_LINE_START = 500
"""Characters to look back for the start of a line; a line that is longer is not laid out by hand."""


def misindented_pair(text: str, trees: Iterable[Any]) -> tuple[int, int] | None:
    """Offsets of the first closing bracket that was meant for another, and of its partner: (opener, closer).

    `trees` are the children of the objects and lists that are still open, as `document.Node` has them.
    """
    pairs = ((end - 1, start) for tree in trees for start, end in _containers(tree))
    closer, opener = min((pair for pair in pairs if _is_misindented(text, pair[1], pair[0])), default=(-1, -1))
    return None if closer < 0 else (opener, closer)


def _containers(children: Any) -> Iterator[tuple[int, int]]:
    """Start and end of every object and list that lies below."""
    pending = [children]
    while pending:
        level = pending.pop()
        for node in level.values() if isinstance(level, dict) else level:
            if node[4] is not None:
                yield node[2], node[3]
                pending.append(node[4])


def _is_misindented(text: str, opener: int, closer: int) -> bool:
    """Whether the closing bracket comes first on its line, which is not indented like the line of its partner."""
    indentation = _start_of_line(text, closer)
    if indentation is None or indentation.strip(" \t") or text[closer] not in "}]":
        return False
    line = _start_of_line(text, opener)
    return line is not None and line[: len(line) - len(line.lstrip(" \t"))] != indentation


def _start_of_line(text: str, offset: int) -> str | None:
    """The line up to `offset`, None where it starts too far away."""
    start = text.rfind("\n", max(offset - _FARTHEST_LINE_START, 0), offset) + 1
    return None if start == 0 and offset > _FARTHEST_LINE_START else text[start:offset]
