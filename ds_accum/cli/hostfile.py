"""DeepSpeed's hostfile: one `HOST slots=N` a line; the world size is the sum of the slots.

Accepts and refuses what DeepSpeed's launcher does (`_parse_hostfile`, launcher/runner.py of 0.19.8): blank lines, lines
that start with #, and anything after the slots are skipped; a host twice, any other line and a file without hosts are
refused. Unlike the launcher, it is an error if the file is not there: it would silently start on one machine.
"""

from __future__ import annotations

import re
from pathlib import Path

from ds_accum.errors import UsageError

__all__ = ["parse_hostfile", "read_hostfile"]

_LINE = re.compile(r"(\S+)\s+slots=(\d+)")


def read_hostfile(path: Path) -> dict[str, int]:
    """Host -> slots, in the order of the file. Raises UsageError, with the line where there is one."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError.because(f"can't read hostfile {path}", error) from error
    return parse_hostfile(text, name=f"hostfile {path}")


def parse_hostfile(text: str, *, name: str) -> dict[str, int]:
    """Host -> slots; `name` is what errors call the file."""
    slots: dict[str, int] = {}
    first_line: dict[str, int] = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None:
            raise UsageError(
                f"{name}, line {number}: expected HOST slots=N, found {line[:60]!r}",
                remedy="write each host as in: worker-0 slots=8",
            )
        host = match[1]
        if host in slots:
            raise UsageError(
                f"{name}, line {number}: {host} is listed twice, first on line {first_line[host]}",
                remedy="give each host one line, with all of its slots",
            )
        slots[host], first_line[host] = int(match[2]), number
    if not sum(slots.values()):
        raise UsageError(f"{name} lists no slots", remedy="write each host as in: worker-0 slots=8")
    return slots
