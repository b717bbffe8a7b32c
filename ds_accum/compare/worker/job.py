"""What one launch is asked to do, read from `job.json`, and what it says meanwhile, appended to `events.jsonl`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from ds_accum.compare.result import VariantResult
from ds_accum.compare.spec import RunSpec, Variant
from ds_accum.errors import UsageError

__all__ = ["EventLog", "Job", "read_job"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One launch: "parity" is parity, communication and speed of several variants; "memory" takes one."""

    kind: Literal["parity", "memory", "misuse"]
    spec: RunSpec
    variants: tuple[str, ...]

    @property
    def chosen(self) -> tuple[Variant, ...]:
        """The variants of this launch, in the order of the comparison."""
        return tuple(variant for variant in self.spec.variants if variant.name in self.variants)


def read_job(folder: Path) -> Job:
    """The job of a folder. Raises UsageError where `job.json` is missing, or is none."""
    path = folder / "job.json"
    try:
        job = TypeAdapter(Job).validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError.because(f"can't read {path}", error, remedy="give the folder of a launch") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise UsageError(f"{path} is not the job of a launch: {where}: {first['msg']}") from error
    missing = sorted(set(job.variants) - {variant.name for variant in job.spec.variants})
    if missing:
        raise UsageError(f"{path} asks for variants that its spec does not have: {', '.join(missing)}")
    if job.kind == "memory" and len(job.variants) != 1:
        raise UsageError(f"a memory job has one variant, for a fresh process each; {path} has {len(job.variants)}")
    return job


class EventLog:
    """Appends events to `events.jsonl`, one line each, at once; only rank 0 has one."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "events.jsonl"

    def model(self, parameters: int, accelerator: str | None) -> None:
        """How many trainable parameters there are, and the name of the device where it is no CPU."""
        machine = {} if accelerator is None else {"accelerator": accelerator}
        self._append({"event": "model", "parameters": parameters, "machine": machine})

    def started(self, variant: str) -> None:
        self._append({"event": "started", "variant": variant})

    def progress(self, variant: str, done: int, of: int) -> None:
        self._append({"event": "progress", "variant": variant, "done": done, "of": of})

    def result(self, result: VariantResult) -> None:
        """What of a variant this launch measured; numbers that are not finite stay what they are."""
        value = TypeAdapter(VariantResult).dump_python(result, mode="json")
        self._append({"event": "result", "variant": result.name, "result": value})

    def failed(self, variant: str, why: str) -> None:
        self._append({"event": "failed", "variant": variant, "why": why})

    def finished(self) -> None:
        self._append({"event": "finished"})

    def _append(self, event: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")
