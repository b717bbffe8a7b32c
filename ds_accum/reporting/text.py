"""Text in columns of a terminal: measured, wrapped, cut and padded; nothing in it can move a cursor."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from unicodedata import category, east_asian_width

__all__ = ["columns_of", "padded", "painted", "printable", "shortened", "wrapped"]


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns; a percent sign stays with its number."""
    lines = textwrap.wrap(printable(text).replace(" %", "\xa0%"), width, break_on_hyphens=False) or [""]
    return [part.replace("\xa0", " ") for line in lines for part in _split_wide(line, width)]


def _split_wide(line: str, width: int) -> Iterator[str]:
    """textwrap counts characters; some take two columns."""
    while columns_of(line) > width:
        head = line
        while columns_of(head) > width:
            head = head[:-1]
        yield head
        line = line[len(head) :]
    yield line


def printable(text: str) -> str:
    """Without what would move a terminal's cursor or change its colours."""
    return re.sub(r"\s+", " ", "".join(" " if category(sign) in ("Cc", "Cf") else sign for sign in text)).strip()


def columns_of(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(0 if category(sign) in ("Mn", "Me") else 2 if east_asian_width(sign) in "WF" else 1 for sign in text)


def shortened(text: str, width: int) -> str:
    """Cut in the middle with "..", so that both ends of a long name can be read."""
    if columns_of(text) <= width:
        return text
    head, tail = text[: len(text) // 2], text[len(text) // 2 :]
    while columns_of(head) + columns_of(tail) + 2 > width:
        if columns_of(head) > columns_of(tail):
            head = head[:-1]
        else:
            tail = tail[1:]
    return f"{head}..{tail}"


def padded(text: str, width: int, *, to_left: bool) -> str:
    """Filled with spaces up to a width, the text at the left or at the right."""
    space = " " * (width - columns_of(text))
    return text + space if to_left else space + text


def painted(text: str, style: str, color: bool) -> str:
    """In a style of ECMA-48's "select graphic rendition", such as "1" for bold; unchanged without colour."""
    return f"\x1b[{style}m{text}\x1b[0m" if color and text else text
