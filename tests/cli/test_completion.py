"""What Tab completes, asked as each shell asks; in bash, by bash itself."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ds_accum.cli.completion import SHELLS

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `ds-accum` as pip would install it."""
    path = tmp_path_factory.mktemp("bin") / "ds-accum"
    path.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from ds_accum.cli.main import main\nmain()\n",
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


def environment(command: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{command.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}", **more}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_calls_the_command_as_click_listens(ds_accum: Any, shell: str) -> None:
    finished = ds_accum("completion", shell)
    assert (finished.code, finished.errors) == (0, "")
    assert f"_DS_ACCUM_COMPLETE={shell}_complete" in finished.output
    assert "ds-accum" in finished.output


def test_another_shell_is_an_error(ds_accum: Any) -> None:
    finished = ds_accum("completion", "csh")
    assert finished.code == 2
    assert "'bash', 'zsh', 'fish'" in finished.errors


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ds-accum ru", ["rule"]),
        ("ds-accum lint --wor", ["--world-size"]),
        ("ds-accum lint --format conc", ["concise"]),
        ("ds-accum rule DSA10", ["DSA101", "DSA102", "DSA103"]),
        ("ds-accum rule batch-size-m", ["batch-size-mismatch"]),
        ("ds-accum init --offload ", ["none", "cpu", "nvme"]),
        ("ds-accum completion ", ["bash", "zsh", "fish"]),
        ("ds-accum ste", ["steps"]),
        ("ds-accum steps --format j", ["json"]),
    ],
)
def test_bash_completes(command: Path, line: str, expected: list[str]) -> None:
    words = shlex.split(line) + ([""] if line.endswith(" ") else [])
    script = "\n".join(
        [
            'eval "$(ds-accum completion bash)"',
            "complete -p ds-accum >/dev/null || exit 3",
            f"COMP_WORDS=({' '.join(map(shlex.quote, words))})",
            f"COMP_CWORD={len(words) - 1}",
            "_ds_accum_completion ds-accum",
            'printf "%s\\n" "${COMPREPLY[@]}"',
        ]
    )
    done = subprocess.run(
        ["bash", "-c", script], env=environment(command), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split()[: len(expected)] == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_what_the_other_shells_ask_is_answered(command: Path, shell: str) -> None:
    incomplete = {"zsh": {"COMP_CWORD": "2"}, "fish": {"COMP_CWORD": "DSA101"}}[shell]
    asked = {"_DS_ACCUM_COMPLETE": f"{shell}_complete", "COMP_WORDS": "ds-accum rule DSA101", **incomplete}
    done = subprocess.run(
        [command], env=environment(command, **asked), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "DSA101" in done.stdout


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_is_one_that_the_shell_can_read(ds_accum: Any, tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    path = tmp_path / "script"
    path.write_text(ds_accum("completion", shell).output, encoding="utf-8")
    done = subprocess.run([shell, "-n", path], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
