"""The hook, run by pre-commit itself on a scratch repository: which files it is given, and what its exit code says.

pre-commit would make an environment with ds-accum in it from the clone, which needs a network; the config overrides
`language` with `system`, and finds the command on PATH. Everything else is as the hook says.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

GOOD = '{"train_micro_batch_size_per_gpu": 8, "gradient_clipping": 1.0}\n'
BAD = '{"train_batch_size": 100, "zero_optimization": {"stage": 2, "overlap_com": true}}\n'

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path, repository: Path) -> Run:
    """Runs a command in the scratch repository, whose pre-commit config takes the hook from a repository of ours."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    commands = tmp_path / "bin"
    commands.mkdir()
    command = commands / "ds-accum"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ds_accum "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PRE_COMMIT"))},
        "PATH": f"{commands}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": str(repository),
        "PRE_COMMIT_HOME": str(tmp_path / "pre-commit"),
        "HOME": str(tmp_path),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }

    def run_in(*arguments: str, cwd: Path = tmp_path / "scratch") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            arguments, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    hooks, scratch = tmp_path / "hooks", tmp_path / "scratch"
    for folder in (hooks, scratch):
        folder.mkdir()
        assert run_in("git", "init", "--quiet", cwd=folder).returncode == 0
    shutil.copy(repository / ".pre-commit-hooks.yaml", hooks)
    run_in("git", "add", ".", cwd=hooks)
    assert run_in("git", "commit", "--quiet", "-m", "hooks", cwd=hooks).returncode == 0
    revision = run_in("git", "rev-parse", "HEAD", cwd=hooks).stdout.strip()
    hook = {"id": "ds-accum-lint", "language": "system", "args": ["--world-size", "8", "--format", "concise"]}
    # YAML, as every JSON text is.
    config = json.dumps({"repos": [{"repo": str(hooks), "rev": revision, "hooks": [hook]}]})
    (scratch / ".pre-commit-config.yaml").write_text(config, encoding="utf-8")
    return run_in


def pre_commit(run: Run, files: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What pre-commit says to a scratch repository of these files."""
    scratch = Path(str(run("pwd").stdout.strip()))
    for name, text in files.items():
        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
        (scratch / name).write_text(text, encoding="utf-8")
    run("git", "add", ".")
    return run(sys.executable, "-m", "pre_commit", "run", "--all-files", "--color", "never", "--verbose")


def test_a_commit_with_a_config_that_deepspeed_refuses_is_stopped(run: Run) -> None:
    finished = pre_commit(run, {"conf/ds_config.json": BAD, "zero3.json": GOOD, "package.json": BAD})
    assert finished.returncode == 1, finished.stdout + finished.stderr
    assert "conf/ds_config.json:1:22: DSA102 [error]" in finished.stdout
    assert "conf/ds_config.json:1:61: DSA701 [error]" in finished.stdout
    assert "package.json" not in finished.stdout
    assert "exit code: 1" in finished.stdout


def test_a_commit_with_good_configs_goes_through(run: Run) -> None:
    finished = pre_commit(run, {"ds_config.json": GOOD, "package.json": BAD})
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "Passed" in finished.stdout


def test_a_commit_without_configs_does_not_start_the_linter(run: Run) -> None:
    finished = pre_commit(run, {"package.json": BAD})
    assert finished.returncode == 0
    assert "no files to check" in finished.stdout


def test_the_settings_of_the_repository_hold_for_the_hook(run: Run) -> None:
    files = {"conf/ds_config.json": BAD, "ds-accum.toml": 'per-file-ignores = {"conf/*.json" = ["DSA1", "DSA7"]}\n'}
    assert pre_commit(run, files).returncode == 0
    finished = pre_commit(run, {"ds-accum.toml": "world = 8\n"})
    assert finished.returncode == 1 and 'ds-accum.toml:1: there is no setting "world"' in finished.stdout
    assert "exit code: 2" in finished.stdout
