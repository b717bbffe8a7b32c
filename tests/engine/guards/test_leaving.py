"""A window that is still open at the end is warned about, with how many micro-batches are lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from guards.injecting import Injection, jobs_of, trials
from launch import Answer

MODULE = "guards.leaving_loops"
BOUNDARY = {"reduction": "boundary"}
OPEN = (
    Injection(function="destroy_inside", module=MODULE),
    Injection(function="destroy_inside", module=MODULE, stages=(2, 3), block=BOUNDARY),
)
CLOSED = (
    Injection(function="destroy_after_a_window", module=MODULE),
    Injection(function="destroy_after_a_flush", module=MODULE),
)
JOBS = jobs_of(*OPEN, *CLOSED)
SAYS = "1 of 2 micro-batches of step 2 were accumulated and never applied; call engine.flush() at the end of the data"


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(OPEN, "raise"))
def test_an_engine_destroyed_inside_a_window_warns_of_what_is_lost(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    for found in injection.found(answers, stage, mode):
        assert found["error"] is None, found["text"]
        assert found["value"] == [f"WindowLeftOpenWarning: {SAYS}"]


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(CLOSED, "raise"))
def test_an_engine_destroyed_between_windows_is_silent(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    for found in injection.found(answers, stage, mode):
        assert found["error"] is None, found["text"]
        assert found["value"] == []


@pytest.mark.parametrize(("micro_batches", "lost"), [(3, True), (2, False)], ids=["open", "closed"])
def test_an_interpreter_that_exits_inside_a_window_warns_of_what_is_lost(micro_batches: int, lost: bool) -> None:
    ended = _left(str(micro_batches))
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert (f"WindowLeftOpenWarning: {SAYS}" in ended.stderr) == lost, ended.stderr[-2000:]


def test_after_an_error_that_nobody_caught_it_has_the_last_word() -> None:
    ended = _left("3", "failing")
    assert ended.returncode == 1
    assert ended.stderr.rstrip().endswith("ValueError: the data have ended badly"), ended.stderr[-2000:]


def _left(*arguments: str) -> subprocess.CompletedProcess[str]:
    folder = Path(__file__).resolve().parent
    environment = {
        **os.environ,
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(folder.parent), *(path for path in sys.path if path)]),
    }
    return subprocess.run(
        [sys.executable, "-m", "guards.leaving_loops", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        env=environment,
        cwd=folder.parent,
        check=False,
    )
