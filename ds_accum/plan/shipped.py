"""Where the files lie that ds-accum brings along: inside the package in a wheel, beside it in a checkout."""

from __future__ import annotations

from pathlib import Path

__all__ = ["shipped_folder"]


def shipped_folder(name: str) -> Path:
    """The folder `configs/name`: `models` or `hardware`."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "configs" / name
    return installed if installed.is_dir() else package.parent / "configs" / name
