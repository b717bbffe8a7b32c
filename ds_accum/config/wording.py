"""Pieces of a config text as a message shows them: short, in quotes, with nothing unprintable in them."""

from __future__ import annotations

import re

__all__ = ["printable", "quoted", "shortened", "token_end"]

_LONGEST = 40

_CLOSED_STRING = re.compile(r""""(?:[^"\\\n\r]|\\.)*"|'(?:[^'\\\n\r]|\\.)*'""")
_WORDS = re.compile(r"""[^\n\r,{}\[\]:#"']+""")


def quoted(key: str) -> str:
    """A key: `"stage"`."""
    return f'"{printable(key)}"'


def shortened(token: str) -> str:
    """A piece of the text: in single quotes, unless it brings quotes of its own; 40 characters at most."""
    token = printable(token if len(token) <= _LONGEST else token[: _LONGEST - 3] + "...")
    has_quotes = len(token) > 1 and token[0] in "\"'" and token[0] == token[-1]
    return token if has_quotes else f"'{token}'"


def token_end(text: str, start: int) -> int:
    """The end of what a reader would call one thing at `start`: a string, a few words, a bracket."""
    match = _CLOSED_STRING.match(text, start) or _WORDS.match(text, start)
    if match is None:
        return min(start + 1, len(text))
    return start + max(len(match[0].rstrip()), 1)


def printable(text: str) -> str:
    """The text with everything escaped that a terminal acts on or does not show: controls, bidirectional marks."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
