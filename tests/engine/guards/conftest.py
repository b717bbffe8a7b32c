"""One launch for all guards that are tested: each module says in JOBS what has to run, and asks `answers` for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from launch import Answer, Job, launch

FOLDER = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def answers(request: pytest.FixtureRequest) -> Mapping[str, Answer]:
    """The answers to the jobs of every module of this folder that has a selected test."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and item.path.parent == FOLDER]
    modules = {item.path: item.module for item in items}
    jobs: dict[str, Job] = {job.name: job for module in modules.values() for job in getattr(module, "JOBS", ())}
    return launch(jobs.values(), timeout=1800)
