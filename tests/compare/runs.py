"""Comparisons whose ranks are those of `fake_worker.py`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ds_accum.compare.launchers import Launcher
from ds_accum.compare.spec import RunSpec
from ds_accum.compare.variants import Request, make_spec

FAKE = Path(__file__).resolve().parent / "fake_worker.py"
LAUNCHER = Launcher(worker=(str(FAKE),))


def small_spec(**asked: Any) -> RunSpec:
    """zero-0 stock, zero-0 token, zero-1 stock, zero-1 token, ddp, single; on two ranks."""
    given: dict[str, Any] = {"stages": (0, 1), "baselines": ("ddp", "single"), "steps": 2, "timeout_s": 20.0}
    return make_spec(Request(**{**given, **asked}))


def misbehaving(monkeypatch: pytest.MonkeyPatch, folder: Path, how: dict[str, str]) -> Callable[[], list[Any]]:
    """Tells the ranks how to misbehave; what it returns says which launches there were."""
    log = folder / "launches.jsonl"
    monkeypatch.setenv("FAKE_WORKER", json.dumps(how))
    monkeypatch.setenv("FAKE_LOG", str(log))
    return lambda: [json.loads(line) for line in log.read_text("utf-8").splitlines()] if log.exists() else []


def is_running(pid: int) -> bool:
    """Whether there is such a process; one that is dead but not yet waited for is not running."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def workers_in(folder: Path) -> list[int]:
    """The processes that were started with a launch's folder below `folder`."""
    found = []
    for arguments in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            said = arguments.read_bytes()
        except OSError:
            continue
        if str(folder).encode() in said and int(arguments.parent.name) != os.getpid():
            found.append(int(arguments.parent.name))
    return [pid for pid in found if is_running(pid)]


def until(condition: Callable[[], object], *, seconds: float = 20.0) -> None:
    """Waits for a condition. Raises AssertionError where it does not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)
