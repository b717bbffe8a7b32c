"""What a fresh Python loads for a command: starting fast is loading little."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Each costs more than reading and checking a config does.
SLOW = frozenset(
    {
        *("torch", "deepspeed", "numpy", "pydantic", "hjson", "yaml"),
        *("importlib.metadata", "difflib", "unicodedata", "base64", "glob", "shutil", "asyncio", "unittest"),
    }
)


def modules_loaded_by(*arguments: str, cwd: Path, extra: str = "") -> set[str]:
    """The modules in a Python that ran `ds-accum` with these arguments, less those that click loads on its own."""
    code = f"""
import sys
import click
before = set(sys.modules)
from ds_accum.cli.main import cli
{extra}
try:
    cli({list(arguments)!r}, prog_name="ds-accum")
except SystemExit as finished:
    assert finished.code == 0, finished.code
print(*sorted(set(sys.modules) - before), file=sys.stderr)
"""
    finished = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return set(finished.stderr.splitlines()[-1].split())


def test_a_clean_file_is_linted_without_any_slow_module(repository: Path) -> None:
    loaded = modules_loaded_by("lint", "configs/zero2.json", "--world-size", "8", cwd=repository)
    assert "ds_accum.lint.linter" in loaded
    assert sorted(loaded & SLOW) == []


def test_help_loads_none_of_the_layers_below(repository: Path) -> None:
    loaded = modules_loaded_by("--help", cwd=repository)
    ours = {name for name in loaded if name.startswith("ds_accum")}
    assert ours == {"ds_accum", "ds_accum.cli", "ds_accum.cli.main", "ds_accum.cli.messages", "ds_accum.errors"}


def test_the_help_of_lint_does_not_load_the_linter(repository: Path) -> None:
    loaded = modules_loaded_by("lint", "--help", cwd=repository)
    assert "ds_accum.cli.lint" in loaded
    assert not {name for name in loaded if name.startswith(("ds_accum.lint", "ds_accum.config", "ds_accum.batch"))}


@pytest.mark.parametrize("name", ["difflib", "importlib.metadata", "pydantic"])
def test_a_slow_module_would_be_seen(repository: Path, name: str) -> None:
    loaded = modules_loaded_by("lint", "configs/zero2.json", cwd=repository, extra=f"import {name}")
    assert name in loaded & SLOW
