"""Where a report goes: to standard output, or into a file, which then holds all of it or what it held before."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ds_accum.errors import UsageError

__all__ = ["replace_file", "write_text"]


def write_text(path: Path, text: str) -> None:
    """Replaces a file in one go, through symbolic links; a pipe or a device is written to as it is."""
    data = text.encode("utf-8", "backslashreplace")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            replace_file(path.resolve(), data)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"can't write {path}: {reason[:1].lower()}{reason[1:]}") from error


def replace_file(path: Path, data: bytes) -> None:
    """The new content under the old name, owner and mode or, if anything fails, the old file as it was."""
    import tempfile  # most runs write no file

    temporary: Path | None = None
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            status = path.stat()
            with suppress(OSError):  # only the superuser may give a file to another user, and for them it matters
                os.chown(temporary, status.st_uid, status.st_gid)
            temporary.chmod(status.st_mode & 0o7777)
        else:
            temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _umask() -> int:
    """Which permissions new files don't get; there is no way to ask but to set it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
