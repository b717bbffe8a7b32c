"""What is built is what people get: the sdist builds the wheel, and the wheel lints in an environment without torch."""

from __future__ import annotations

import configparser
import email
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

# Not sources: what environments, tools and builds leave in a working tree.
LEFTOVERS = shutil.ignore_patterns(
    ".git", ".venv*", "build", "dist", "*.egg-info", "__pycache__", ".hypothesis", ".*_cache"
)
LIGHT_REQUIREMENTS = {"click", "pydantic", "PyYAML", "tomli"}
# Said by `ds-accum rule` to whoever has the wheel; the pages are for those who browse the sources.
NOT_SHIPPED = "ds_accum/lint/rules/pages/"


def run(*command: str | Path, cwd: Path, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """Runs a command that can't see the working tree through PYTHONPATH."""
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
    )


def succeed(*command: str | Path, cwd: Path) -> str:
    finished = run(*command, cwd=cwd)
    assert finished.returncode == 0, f"{command}:\n{finished.stdout}\n{finished.stderr}"
    return finished.stdout


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """A virtual environment of its own."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def ds_accum(self) -> Path:
        return self.folder / "bin" / "ds-accum"

    def install(self, *arguments: str | Path) -> None:
        succeed(self.python, "-m", "pip", "install", "--quiet", *arguments, cwd=self.folder)

    def evaluate(self, expression: str, *, imports: str) -> str:
        """What an expression prints in a fresh Python of this environment, outside the working tree."""
        return succeed(self.python, "-c", f"import {imports}; print({expression})", cwd=self.folder).strip()


def new_environment(folder: Path) -> Environment:
    succeed(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    return Environment(folder=folder)


@pytest.fixture(scope="module")
def source(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, so that building leaves nothing in the working tree."""
    return Path(
        shutil.copytree(repository, tmp_path_factory.mktemp("source") / "ds-accum", ignore=LEFTOVERS, symlinks=True)
    )


@pytest.fixture(scope="module")
def distributions(source: Path) -> Path:
    """A folder with the sdist, and the wheel that was built from the unpacked sdist."""
    folder = source.parent / "distributions"
    succeed(sys.executable, "-m", "build", "--outdir", folder, source, cwd=source.parent)
    return folder


@pytest.fixture(scope="module")
def sdist(distributions: Path) -> Path:
    (path,) = distributions.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    (path,) = distributions.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Environment:
    """An environment that holds the wheel and what it requires, nothing else."""
    environment = new_environment(wheel.parent / "environment")
    environment.install(wheel)
    return environment


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel without those that describe the wheel itself."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# ------------------------------------------------------------------------------------------------------- what is in it


def test_the_wheel_holds_the_package_and_the_ready_configs_and_nothing_else(source: Path, wheel: Path) -> None:
    package = {f"ds_accum/{name}" for name in files_below(source / "ds_accum")}
    configs = {f"ds_accum/configs/{name}" for name in files_below(source / "configs")}
    assert contents(wheel).keys() == {name for name in package | configs if not name.startswith(NOT_SHIPPED)}
    assert "ds_accum/py.typed" in package
    assert any(re.fullmatch(r"ds_accum/config/versions/\w+\.json", name) for name in package)


def test_the_wheel_built_from_the_sdist_is_the_one_built_from_the_sources(source: Path, wheel: Path) -> None:
    folder = source.parent / "direct"
    succeed(sys.executable, "-m", "build", "--wheel", "--outdir", folder, source, cwd=source.parent)
    (direct,) = folder.glob("*.whl")
    assert contents(direct) == contents(wheel)


def test_the_sdist_holds_the_tests_and_the_commands(source: Path, sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        members = {member.name.partition("/")[2]: member for member in archive if member.isfile()}
    for folder in ("tests", "bin", "configs", "ds_accum", ".ci"):
        missing = {f"{folder}/{name}" for name in files_below(source / folder)} - members.keys()
        assert not missing
    assert {"LICENSE", "CHANGELOG.md", ".ruff.toml", ".pre-commit-hooks.yaml"} <= members.keys()
    for command in ("bin/demo", "bin/test", ".ci/run"):
        assert members[command].mode & 0o111, f"{command} can't be executed"


def test_the_wheel_requires_nothing_heavy_unless_an_extra_is_asked_for(wheel: Path) -> None:
    requirements = metadata(wheel).get_all("Requires-Dist", [])
    unconditional = {re.split(r"[^\w.-]", line)[0] for line in requirements if "extra ==" not in line}
    assert unconditional == LIGHT_REQUIREMENTS
    assert metadata(wheel).get_all("Provides-Extra") == ["engine", "lsp", "report", "dev", "huggingface"]


# -------------------------------------------------------------------------------------------------------- that it runs


def test_the_version_is_written_once(installed: Environment, wheel: Path) -> None:
    version = metadata(wheel)["Version"]
    assert installed.evaluate("ds_accum.__version__", imports="ds_accum") == version
    assert version in succeed(installed.ds_accum, "--version", cwd=installed.folder)


def test_the_environment_of_the_wheel_has_neither_torch_nor_deepspeed_nor_numpy(installed: Environment) -> None:
    found = "[importlib.util.find_spec(name) for name in ('torch', 'deepspeed', 'numpy')]"
    assert installed.evaluate(found, imports="importlib.util") == "[None, None, None]"


def test_the_installed_command_explains_itself(installed: Environment) -> None:
    assert "lint" in succeed(installed.ds_accum, "--help", cwd=installed.folder)


def test_the_installed_command_lints_the_installed_configs(installed: Environment) -> None:
    path = "importlib.resources.files('ds_accum.configs') / 'zero2.json'"
    config = installed.evaluate(path, imports="importlib.resources")
    assert config.startswith(str(installed.folder))
    succeed(installed.ds_accum, "lint", config, "--world-size", "8", cwd=installed.folder)


def test_the_installed_command_catches_a_mistake(installed: Environment, repository: Path) -> None:
    broken = repository / "tests" / "data" / "broken" / "batch_mismatch.json"
    finished = run(installed.ds_accum, "lint", broken, "--world-size", "8", cwd=installed.folder)
    assert finished.returncode == 1, finished.stdout + finished.stderr
    assert all(number in finished.stdout for number in ("256", "128")), finished.stdout


def test_an_editable_install_sees_the_ready_configs(source: Path, tmp_path: Path) -> None:
    environment = new_environment(tmp_path / "environment")
    environment.install("--no-deps", "--use-pep517", "--editable", source)
    path = "importlib.resources.files('ds_accum.configs') / 'zero2.json'"
    assert environment.evaluate(path, imports="importlib.resources") == str(source / "configs" / "zero2.json")


# ---------------------------------------------------------------------------------------------- what others call it by


def pre_commit_hook(repository: Path) -> dict[str, Any]:
    import yaml

    (hook,) = yaml.safe_load((repository / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    return dict(hook)


def test_the_pre_commit_hook_runs_the_installed_command(repository: Path) -> None:
    setup = configparser.ConfigParser()
    setup.read(repository / "setup.cfg", encoding="utf-8")
    name, _, target = setup["options.entry_points"]["console_scripts"].strip().partition(" = ")
    assert pre_commit_hook(repository)["entry"].split() == [name, "lint"]
    assert importlib.util.find_spec(target.partition(":")[0]) is not None


@pytest.mark.parametrize(
    ("path", "is_linted"),
    [
        ("ds_config.json", True),
        ("train/my-ds-config.json", True),
        ("deepspeed.json", True),
        ("configs/DeepSpeed_ZeRO3_offload.json", True),
        ("accelerate/deepspeed_zero2.yaml", True),
        ("zero_stage2_config.json", True),
        ("conf/zero3.json", True),
        ("package.json", False),
        ("deepspeed/package.json", False),
        ("zero_shot.json", False),
        ("adsorption.yaml", False),
        ("ds_config.json.bak", False),
    ],
)
def test_the_pre_commit_hook_takes_deepspeed_configs_by_name(repository: Path, path: str, is_linted: bool) -> None:
    assert bool(re.search(pre_commit_hook(repository)["files"], path)) is is_linted
