"""Every test here runs DeepSpeed; the modules beside them are imported by their bare names, as the workers do."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

# One seed for all that is generated in this run: new every time, unless it is given.
os.environ.setdefault("DS_ACCUM_SEED", str(time.time_ns() // 1_000_000))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.engine)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"tests/conformance generated from DS_ACCUM_SEED={os.environ['DS_ACCUM_SEED']}")
