"""A file is written whole or not at all: what was there before stays until the new text is on the disk."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from ds_accum.errors import UsageError

__all__ = ["replace_file", "require_folder", "unwritable", "write_file"]


def write_file(path: Path, text: str, *, replace: bool = True) -> None:
    """Writes a text file in UTF-8, through symbolic links; a pipe or a device is written to as it is.

    Raises UsageError where it can't be written, or is there already and `replace` is false.
    """
    if not replace and path.exists():
        raise UsageError(f"{path} is there already", remedy="give another name, or --force to replace it")
    # The name of a file may hold bytes that are no text; a report that names it is written all the same.
    data = text.encode("utf-8", "backslashreplace")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            replace_file(path.resolve(), data)
    except OSError as error:
        raise unwritable(path, error) from error


def require_folder(path: Path) -> None:
    """Raises UsageError where the folder that a file is to be written in is not there, or takes no file.

    For what is written after long work: `write_file` finds out for itself.
    """
    try:
        if path.exists() and not path.is_file():
            return
        folder = path.resolve().parent
        if not folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise unwritable(path, error) from error


def replace_file(path: Path, data: bytes) -> None:
    """The new content under the old name, owner and mode or, if anything fails, the old file as it was.

    `path` is no symbolic link. Raises OSError from the system.
    """
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


def unwritable(path: Path, error: OSError) -> UsageError:
    """That a file can't be written, and why."""
    return UsageError.because(f"can't write {path}", error)


def _umask() -> int:
    """Which permissions new files don't get; there is no way to ask but to set it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
