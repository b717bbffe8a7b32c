"""Which DeepSpeed is installed beside us, from the names of the folders that packages leave behind.

Importing DeepSpeed costs seconds and torch, asking `importlib.metadata` tens of milliseconds; the name of
`deepspeed-0.19.8.dist-info` says the same.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ds_accum.errors import UsageError

if TYPE_CHECKING:
    from ds_accum.config.schema import Version

__all__ = ["installed_deepspeed", "release_to_judge_for"]

_METADATA = re.compile(r"deepspeed-(\d[^-]*)(?:-py[\d.]+)?\.(?:dist|egg)-info", re.IGNORECASE)


def installed_deepspeed(search_path: Iterable[str] | None = None) -> str | None:
    """The version of the DeepSpeed that an import would find, None if there is none. Looks in `sys.path` by default."""
    for folder in sys.path if search_path is None else search_path:
        try:
            with os.scandir(folder or ".") as entries:
                names = sorted(entry.name for entry in entries)
        except OSError:  # an archive, or a folder that is not there
            continue
        for match in filter(None, map(_METADATA.fullmatch, names)):
            return match[1]
    return None


def release_to_judge_for(given: str | None) -> tuple[Version, str]:
    """The DeepSpeed release to judge for, and where that comes from. Raises UsageError if `given` is no version."""
    from ds_accum.config.schema import newest_version, parse_version

    if given is not None:
        try:
            return parse_version(given), "given"
        except ValueError as error:
            raise UsageError(f"--deepspeed-version: {error}") from error
    try:
        return parse_version(installed_deepspeed() or ""), "installed"
    except ValueError:
        return newest_version(), "the newest known"
