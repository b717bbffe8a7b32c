"""The ranks of a test can be trusted: they are joined, they can't disturb each other, and what goes wrong is told."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from launch import Answer, Job, launch

HERE = "launched"


@pytest.fixture(scope="module")
def answers() -> dict[str, Answer]:
    jobs = [
        Job(name="adds", function=f"{HERE}:add_up_ranks", arguments={"each": 2}, ranks=3),
        Job(name="fails alone", function=f"{HERE}:fail_on_one_rank"),
        Job(name="hangs", function=f"{HERE}:wait_on_one_rank", timeout=3.0),
        Job(name="dies", function=f"{HERE}:die"),
        Job(name="adds after that", function=f"{HERE}:add_up_ranks", arguments={"each": 1}, ranks=2),
    ]
    return launch(jobs, timeout=600)


def test_every_rank_returns_what_it_found(answers: dict[str, Answer]) -> None:
    assert answers["adds"].values == ({"sum": 6.0, "rank": 0}, {"sum": 6.0, "rank": 1}, {"sum": 6.0, "rank": 2})


def test_a_job_that_fails_names_the_rank_and_does_not_stop_the_others(answers: dict[str, Answer]) -> None:
    errors = answers["fails alone"].errors
    assert errors[1] is not None and "ValueError: only rank 1 fails" in errors[1]
    assert answers["adds after that"].value() == {"sum": 2.0, "rank": 0}
    with pytest.raises(AssertionError, match="only rank 1 fails"):
        answers["fails alone"].value()


def test_a_job_that_hangs_is_killed_and_says_where_it_was(answers: dict[str, Answer]) -> None:
    errors = answers["hangs"].errors
    assert errors[0] is not None and "was killed" in errors[0] and "wait_on_one_rank" in errors[0]
    assert answers["hangs"].seconds < 30


def test_a_rank_that_dies_is_told_from_one_that_fails(answers: dict[str, Answer]) -> None:
    assert all(error is not None and "exited with 3" in error for error in answers["dies"].errors)


def test_a_worker_past_its_time_ends_with_all_its_ranks(tmp_path: Path) -> None:
    marker = tmp_path / "pids"
    jobs = [Job(name="hangs", function=f"{HERE}:note_and_wait", arguments={"marker": str(marker)}, timeout=100.0)]
    with pytest.raises(RuntimeError, match="the worker took longer than"):
        launch(jobs, timeout=30)
    pids = [int(line) for line in marker.read_text("utf-8").split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 5
    while any(_lives(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_lives(pid) for pid in pids)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[:1]
    except (ProcessLookupError, FileNotFoundError):
        return False
