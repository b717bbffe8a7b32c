"""File patterns of a settings file, relative to its folder.

generated           a file or a folder of that name, wherever it is
*.hf.json           files by name, wherever they are
conf/old            a path; what a folder of that name holds is meant too
conf/**/zero3*.json `*` and `?` stay within one name, `**` stands for any number of folders
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePath

__all__ = ["matches"]


def matches(pattern: str, path: PurePath) -> bool:
    """Whether a pattern means this path, which is relative to the same folder, or a folder above it."""
    parts = path.as_posix().split("/")
    wanted = pattern.strip("/").removeprefix("./")
    if "/" not in wanted:
        return any(_expression(wanted).fullmatch(part) for part in parts)
    return any(_expression(wanted).fullmatch("/".join(parts[:length])) for length in range(1, len(parts) + 1))


@lru_cache
def _expression(pattern: str) -> re.Pattern[str]:
    expression = ""
    for token in re.findall(r"\*\*/|\*\*|\*|\?|[^*?]+", pattern):
        expression += {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(token) or re.escape(token)
    return re.compile(expression, re.DOTALL)
