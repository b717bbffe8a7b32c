"""A config that is handed to DeepSpeed as one base64 word, instead of as a file.

DeepSpeed takes every string that names no file for urlsafe base64 (`DeepSpeedConfig.__init__`, runtime/config.py of
0.19.8): decoded as UTF-8, read by `hjson.loads`, which keeps the last of two equal keys. A file would be refused.
"""

from __future__ import annotations

from ds_accum.config.document import Document, Syntax, read_text

__all__ = ["read_base64"]


def read_base64(word: str, *, filename: str = "<base64>") -> Document | None:
    """The config in a word, None if it holds none: almost every path decodes to something, hardly any to an object."""
    import base64  # only where a path does not exist

    try:
        text = base64.b64decode(word.encode("ascii"), altchars=b"-_", validate=True).decode("utf-8")
    except ValueError:  # no ASCII, no base64, no UTF-8
        return None
    if not all(character.isprintable() or character.isspace() for character in text):
        return None
    document = read_text(text, filename=filename, syntax=Syntax.HJSON, universal_newlines=False)
    is_object = isinstance(document.value, dict) and bool(document.value)
    # What opens like an object was meant as one, however broken it is; anything else has to be one.
    return document if text.lstrip().startswith("{") or (is_object and not document.problems) else None
