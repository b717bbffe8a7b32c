"""One JSON line an optimizer step, written by rank 0 and read by `ds-accum steps`.

    with StepLog("steps.jsonl") as log:
        log.write(report)

A line is what a StepReport holds, and `clipped_norm`. Numbers that JSON has no word for are written as the strings
"inf", "-inf" and "nan". A failing disk never stops training: the first failure is warned about, the rest is silence.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import warnings
from pathlib import Path
from typing import IO, Any

from ds_accum.engine.report import StepReport
from ds_accum.errors import ConfigError

__all__ = ["StepLog", "as_json_line"]


class StepLog:
    """Appends to a file, so that a resumed run goes on in the one it left. Opened at the first line."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._file: IO[str] | None = None
        self._failed = False

    def check_writable(self) -> None:
        """Before a run: raises ConfigError where no line could be written. Nothing is created yet."""
        place = next(folder for folder in (self._path, *self._path.absolute().parents) if folder.exists())
        is_right = place.is_file() if place == self._path else place.is_dir()
        if not is_right or not os.access(place, os.W_OK):
            what = "is no file" if place == self._path and not is_right else f"can't be written: see {place}"
            raise ConfigError(
                f'ds_accum.log is "{self._path}", which {what}',
                remedy="name a file in a folder that rank 0 may write to",
            )

    def write(self, report: StepReport) -> None:
        """Adds a line and hands it to the system, so that a killed job leaves every finished step behind."""
        if self._failed:
            return
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("a", encoding="utf-8")
                if _ends_within_a_line(self._path):
                    # The job before was killed while it wrote: what it left must not spoil our first line.
                    self._file.write("\n")
            self._file.write(as_json_line(report) + "\n")
            self._file.flush()
        except OSError as error:
            self._failed = True
            with contextlib.suppress(OSError):  # closing tries once more to write what could not be written
                self.close()
            warnings.warn(
                f"steps are no longer logged: can't write {self._path}: {error.strerror or error}",
                RuntimeWarning,
                stacklevel=2,
            )

    def close(self) -> None:
        """Closes the file; a later line opens it again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __enter__(self) -> StepLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def as_json_line(report: StepReport) -> str:
    """The report as one line of strict JSON."""
    values = {**dataclasses.asdict(report), "clipped_norm": report.clipped_norm}
    return json.dumps({key: _sayable(value) for key, value in values.items()}, allow_nan=False)


def _ends_within_a_line(path: Path) -> bool:
    if not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


def _sayable(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value
