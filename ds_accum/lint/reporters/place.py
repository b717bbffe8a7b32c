"""How a file is called by a program that knows it from the root of a repository, where the linter was started."""

from __future__ import annotations

import os

__all__ = ["relative_name"]


def relative_name(filename: str) -> str:
    """The name from the working directory, without "./"; a file that is not below it keeps its absolute name."""
    if filename.startswith("<"):  # <stdin>, <base64>
        return filename
    name = os.path.relpath(filename)
    return os.path.abspath(filename) if name.startswith("..") else name.replace(os.sep, "/")  # noqa: PTH100
