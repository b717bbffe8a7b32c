"""A file is written whole or not at all: what was there before stays until the new text is on the disk."""

from __future__ import annotations

import os
from pathlib import Path

from ds_accum.errors import UsageError

__all__ = ["write_file"]


def write_file(path: Path, text: str, *, replace: bool) -> None:
    """Writes a text file in UTF-8. Raises UsageError if there is one and `replace` is false; OSError from the system.

    A link is followed, so that the file behind it is replaced and the link stays; a device is written to directly.
    """
    target = Path(os.path.realpath(path))
    exists = target.exists()
    if exists and not replace:
        raise UsageError(f"{path} is there already", remedy="give another name, or --force to replace it")
    if exists and not target.is_file():
        target.write_text(text, encoding="utf-8")
        return
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if exists:
            temporary.chmod(target.stat().st_mode & 0o7777)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
