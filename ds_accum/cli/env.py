"""`ds-accum env`: what a bug report needs to know about this machine, and nothing that is nobody's business."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

__all__ = ["FORMATS", "env", "report"]

FORMATS = ("text", "json")

# Beside Python and ds-accum itself: what reads a config, and what the linter and the engine are built on.
_PACKAGES = (
    *("torch", "deepspeed", "transformers", "accelerate", "lightning", "trl", "peft"),
    *("click", "pydantic", "PyYAML", "pygls"),
)

# What launchers tell a process about the job, and what ds-accum itself listens to. Nothing else of the environment is
# shown: it may hold secrets.
_VARIABLES = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "CROSS_RANK", "CROSS_SIZE"),
    *("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "SLURM_NNODES", "SLURM_PROCID"),
    *("DS_ACCELERATOR", "CUDA_VISIBLE_DEVICES", "NO_COLOR", "FORCE_COLOR", "DS_ACCUM_TRACEBACK"),
)

# Where DeepSpeed's launcher looks for machines unless told otherwise (`DLTS_HOSTFILE`, launcher/runner.py).
_HOSTFILE = Path("/job/hostfile")


@click.command(short_help="Print versions and what was detected, for a bug report.")
@click.option("--format", "format_name", type=click.Choice(FORMATS), default="text", show_default=True)
def env(format_name: str) -> None:
    """Print versions and what was detected, for a bug report.

    Versions are read from what the packages left behind when they were installed; none is imported. Of the environment
    only what launchers say about the job is shown.
    """
    found = report()
    if format_name == "json":
        import json

        click.echo(json.dumps({"version": 1, **found}, indent=2))
        return
    for heading, entries in found.items():
        click.echo(f"{heading}:")
        if not entries:
            click.echo("  nothing that a launcher or ds-accum reads is set")
        width = max(map(len, entries), default=0)
        for name, value in entries.items():
            click.echo(f"  {name:<{width}}  {'not installed' if value is None else value}")


def report() -> dict[str, dict[str, Any]]:
    """Section -> name -> value; a package without a value is not installed."""
    import platform

    from ds_accum import __version__
    from ds_accum.cli.installed_deepspeed import installed_deepspeed, release_to_judge_for
    from ds_accum.config.schema import format_version, known_versions

    version, source = release_to_judge_for(None)
    known = known_versions()
    detected: dict[str, Any] = {
        "judged for": f"DeepSpeed {format_version(version)} ({source})",
        "installed DeepSpeed": installed_deepspeed(),
        "known releases": f"{format_version(known[0])} to {format_version(known[-1])}",
        "settings file": _settings_file(),
        "hostfile": _slots(_HOSTFILE),
    }
    return {
        "versions": {
            "ds-accum": __version__,
            "Python": platform.python_version(),
            **{name: _version(name) for name in _PACKAGES},
        },
        "platform": {
            "system": platform.platform(),
            "machine": platform.machine(),
            "Python": f"{platform.python_implementation()} at {without_home(sys.executable)}",
            "ds-accum": without_home(str(Path(__file__).resolve().parent.parent)),
            "working directory": without_home(os.getcwd()),  # noqa: PTH109 - Path.cwd() is no shorter
            "encoding": f"{sys.stdout.encoding} (output), {sys.getfilesystemencoding()} (file names)",
        },
        "detected": {name: value for name, value in detected.items() if value is not None},
        "environment": {name: without_home(os.environ[name]) for name in _VARIABLES if name in os.environ},
    }


def without_home(path: str) -> str:
    """A path with `~` for the home directory, which may be named after somebody."""
    home = str(Path.home())
    if home != os.sep and (path == home or path.startswith(home + os.sep)):
        return "~" + path[len(home) :]
    return path


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _settings_file() -> str:
    """The one that holds for the configs in the working directory, by its path from there."""
    from ds_accum.errors import UsageError
    from ds_accum.lint.settings import SettingsSearch

    try:
        found = SettingsSearch().above(Path("ds_config.json"))
    except UsageError as error:
        return str(error)
    return "none" if found is None else without_home(found.name)


def _slots(path: Path) -> str | None:
    """What DeepSpeed's own hostfile says, without the names of the machines."""
    from ds_accum.cli.hostfile import read_hostfile
    from ds_accum.errors import UsageError

    if not path.exists():
        return None
    try:
        slots = read_hostfile(path)
    except UsageError as error:
        return f"{path}: {error}"
    return f"{path}: {len(slots)} {'host' if len(slots) == 1 else 'hosts'}, {sum(slots.values())} slots"
