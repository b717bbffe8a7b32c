"""What a launch is asked for (`job.json`) and what it says while it runs (`events.jsonl`), in a folder of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from ds_accum.compare.spec import RunSpec

__all__ = ["Event", "EventReader", "Job", "JobKind", "suspect", "write_job"]

JobKind = Literal["parity", "memory", "misuse"]

_SPEC = TypeAdapter(RunSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one launch measures, of which variants."""

    kind: JobKind
    variants: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of rank 0's; `fields` is all of it. `variant` is None for what is about the whole launch.

    kind "started", "progress" (with done, of), "result" (result), "failed" (why), "finished", or "damaged": a line that
    can't be read.
    """

    kind: str
    variant: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


def write_job(folder: Path, job: Job, spec: RunSpec) -> None:
    """Writes `job.json`.

    The ranks' own time limit is the longer one: whoever watches them all can say which one is behind.
    """
    patient = replace(spec, timeout_s=1.5 * spec.timeout_s + 15)
    content = {"kind": job.kind, "variants": job.variants, "spec": _SPEC.dump_python(patient, mode="json")}
    (folder / "job.json").write_text(json.dumps(content), encoding="utf-8")


class EventReader:
    """Follows a file that is being written, a whole line at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> Iterator[Event]:
        """The events since the last call; none while there is no file."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        whole, newline, _ = data.rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        for line in whole.splitlines():
            if line.strip():
                yield _event(line)


def suspect(job: Job, events: list[Event]) -> str | None:
    """The variant that a launch was busy with when it ended; None where it had begun none.

    Rank 0 says when it starts a variant, and again when it starts a step of it, in whatever order they take turns.
    """
    started = (event.variant for event in reversed(events) if event.kind in ("started", "progress"))
    return next((name for name in started if name in job.variants), None)


def _event(line: bytes) -> Event:
    try:
        fields = json.loads(line)
        kind, variant = fields["event"], fields.get("variant")
    except (ValueError, KeyError, TypeError, AttributeError):
        fields = None
    if fields is None or not isinstance(kind, str) or not isinstance(variant, str | None):
        return Event(kind="damaged", fields={"line": line[:200].decode("utf-8", "replace")})
    return Event(kind=kind, variant=variant, fields=fields)
