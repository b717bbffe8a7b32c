"""How a key or a value is written, so that it looks like its neighbours and is read as what it is.

like='"10"'        the string in whose place it comes: another keeps its kind of quotes, a number its digits
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from ds_accum.config.document import Syntax

__all__ = ["Style", "is_bare", "written_key", "written_scalar", "written_value"]

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
# YAML 1.1 asks a number with an exponent for a point and a sign.
_NUMBER_IN_YAML = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][-+][0-9]+)?)?")
# Words that one of the syntaxes takes for something else than a string.
_SPECIAL_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How the members around a new one are written. `unit` is one step of indentation."""

    syntax: Syntax
    line_end: str = "\n"
    unit: str = "  "
    colon: str = ": "
    comma: str = ", "
    padding: str = ""
    key_quote: str = '"'
    has_commas: bool = True


def is_bare(word: str) -> bool:
    """Whether a word is a string without quotes too, in every syntax that knows such strings."""
    return _BARE.fullmatch(word) is not None and word.lower() not in _SPECIAL_WORDS


def written_key(name: str, quote: str) -> str:
    """A key in the given quotes; "" is for none, where the word allows it."""
    if quote == "" and is_bare(name):
        return name
    return _quoted(name, quote or '"')


def written_scalar(value: Any, syntax: Syntax, *, like: str | None = None) -> str:
    """A string, a number, a boolean or null."""
    if isinstance(value, str):
        bare = syntax is Syntax.YAML if like is None else like[:1] not in ("'", '"')
        if syntax is Syntax.JSON or (like is not None and like.startswith("'''")):
            bare, like = False, None
        if bare and is_bare(value):
            return value
        return _quoted(value, "'" if like is not None and like[:1] == "'" else '"')
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _written_number(value, syntax, "" if like is None else like.strip("\"'").strip())
    return json.dumps(value)


def written_value(value: Any, style: Style, indentation: str | None = None) -> str:
    """Any value: on one line, or with each member on a line of its own below a line with this indentation."""
    if isinstance(value, list):
        return f"[{', '.join(written_value(item, style) for item in value)}]"
    if not isinstance(value, dict):
        return written_scalar(value, style.syntax)
    if not value:
        return "{}"
    inner = None if indentation is None else indentation + style.unit
    members = [
        f"{written_key(key, style.key_quote)}{style.colon}{written_value(item, style, inner)}"
        for key, item in value.items()
    ]
    if inner is None:
        return f"{{{style.padding}{style.comma.join(members)}{style.padding}}}"
    between = f"{',' if style.has_commas else ''}{style.line_end}{inner}"
    return f"{{{style.line_end}{inner}{between.join(members)}{style.line_end}{indentation}}}"


def _quoted(text: str, quote: str) -> str:
    if quote == "'" and text.isprintable() and "'" not in text and "\\" not in text:
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _written_number(value: float, syntax: Syntax, digits: str) -> str:
    pattern = _NUMBER_IN_YAML if syntax is Syntax.YAML else _NUMBER
    if len(digits) < 100 and pattern.fullmatch(digits) and float(digits) == value:
        return digits
    text = repr(value)
    if syntax is Syntax.YAML and "e" in text and "." not in text:
        text = text.replace("e", ".0e")
    return text
