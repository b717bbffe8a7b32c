"""Where a report goes: to standard output, or into a file, which then holds all of it or what it held before."""

from __future__ import annotations

import os
from pathlib import Path

from ds_accum.errors import UsageError

__all__ = ["write_text"]


def write_text(path: Path, text: str) -> None:
    """Replaces a file in one go, through symbolic links; a pipe or a device is written to as it is."""
    import tempfile  # most runs write no file

    data = text.encode("utf-8", "backslashreplace")
    temporary: Path | None = None
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        target = path.resolve()
        mode = target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask()
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.chmod(mode)
        temporary.replace(target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"can't write {path}: {reason[:1].lower()}{reason[1:]}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _umask() -> int:
    """Which permissions new files don't get; there is no way to ask but to set it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
