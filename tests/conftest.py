"""What tests need from outside the repository: DeepSpeed, and the corpus of real configs."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def missing_engine_packages() -> list[str]:
    """Those of torch and DeepSpeed that can't be imported here, found without importing them."""
    return [name for name in ("torch", "deepspeed") if importlib.util.find_spec(name) is None]


def pytest_configure(config: pytest.Config) -> None:
    """Refuses to start without DeepSpeed where it is required, so that no test can skip silently."""
    # DeepSpeed's operators are compiled by the ninja on PATH, and two releases of ninja undo each other's work: let it
    # be this environment's, however pytest was started.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    missing = missing_engine_packages()
    if missing and os.environ.get("DS_ACCUM_REQUIRE_ENGINE") == "1":
        raise pytest.UsageError(f"DS_ACCUM_REQUIRE_ENGINE is 1, but {' and '.join(missing)} can't be imported")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("engine") is not None and (missing := missing_engine_packages()):
        pytest.skip(f"needs {' and '.join(missing)}")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return REPOSITORY


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real configs and of what DeepSpeed said to each, from DS_ACCUM_CORPUS."""
    location = os.environ.get("DS_ACCUM_CORPUS")
    if not location:
        pytest.skip("DS_ACCUM_CORPUS is not set")
    folder = Path(location)
    if not folder.is_dir():
        pytest.fail(f"DS_ACCUM_CORPUS is {location}, which is not a folder")
    return folder
