"""Every test here runs DeepSpeed; the modules beside them are imported by their bare names, as the ranks do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

from worst import worst  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.engine)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in worst():
        terminalreporter.write_line(f"largest errors, {line}")
