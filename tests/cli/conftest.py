"""The `ds-accum` command, run in this process: fast, and through everything but the operating system."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from ds_accum.cli.main import cli


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """A command that has ended."""

    code: int
    output: str
    errors: str


DsAccum = Callable[..., Finished]


@pytest.fixture
def ds_accum(monkeypatch: pytest.MonkeyPatch) -> DsAccum:
    """`ds_accum("lint", path, stdin="...")`."""
    # What a developer has set for their own terminal.
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "DS_ACCUM_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str | Path, stdin: str | bytes = "") -> Finished:
        result = CliRunner().invoke(cli, list(map(str, arguments)), input=stdin, prog_name="ds-accum")
        return Finished(code=result.exit_code, output=result.stdout, errors=result.stderr)

    return run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, the root of a project."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


# Adds up at a world of 16, and at no other.
FITS_16 = """{
  "train_batch_size": 256,
  "train_micro_batch_size_per_gpu": 8,
  "gradient_accumulation_steps": 2,
  "gradient_clipping": 1.0
}
"""
GOOD = '{\n  "train_micro_batch_size_per_gpu": 8,\n  "gradient_clipping": 1.0\n}\n'


@pytest.fixture
def mismatch(folder: Path) -> Path:
    """ds_config.json in the working directory, with one finding, DSA101, at every world but 16."""
    path = folder / "ds_config.json"
    path.write_text(FITS_16, encoding="utf-8")
    return Path(path.name)


@pytest.fixture
def good(folder: Path) -> Path:
    """good.json in the working directory, without findings."""
    path = folder / "good.json"
    path.write_text(GOOD, encoding="utf-8")
    return Path(path.name)
