"""The config file that an Accelerate YAML names: where it is, and whether it may be read.

Accelerate opens `deepspeed_config_file` from the folder where the job is launched, which no file tells. So it is looked
for beside the YAML and in each folder above, up to the project's root. Never outside: a config must not be able to make
this tool read, and show, any file of the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import NamedTuple

from ds_accum.config.document import Document
from ds_accum.config.embedded import referenced_file

__all__ = ["Reference", "find_reference", "leads_outside", "project_root"]

# What lies at the root of a project.
_ROOT_MARKS = (".git", "pyproject.toml", "setup.cfg", "setup.py")


class Reference(NamedTuple):
    """A file that a document names.

    `name` is as it stands there. `path` is the file, None if there is none, or if `is_outside`: all that the name could
    mean lies outside the project, where nothing is looked at.
    """

    name: str
    path: FilePath | None = None
    is_outside: bool = False


def find_reference(document: Document, path: FilePath) -> Reference | None:
    """The config file that the document at `path` names, None if it names none."""
    name = referenced_file(document)
    if name is None:
        return None
    folder = path.absolute().parent
    root = project_root(folder)
    candidates = [file for file in _candidates(name, folder, root) if _is_below(file, root)]
    found = next((file for file in candidates if _is_file(file)), None)
    return Reference(name=name, path=found and _as_given(found, path), is_outside=not candidates)


def project_root(folder: FilePath) -> FilePath:
    """The nearest folder, from `folder` upwards, with a .git, pyproject.toml, setup.cfg or setup.py; else `folder`."""
    absolute = folder.absolute()
    for candidate in (absolute, *absolute.parents):
        if any((candidate / mark).exists() for mark in _ROOT_MARKS):
            return candidate
    return absolute


def leads_outside(filename: str) -> bool:
    """Whether a file lies in a project by its name only: a link leads out of it, to what is not the project's."""
    file = FilePath(filename).absolute()
    return file.exists() and not _is_below(file, project_root(file.parent))


def _candidates(name: str, folder: FilePath, root: FilePath) -> Iterator[FilePath]:
    """What a name could mean: itself, if it is absolute, else one file for each folder up to the root."""
    for base in (folder, *folder.parents):
        yield base / name
        if base == root:
            return


def _is_below(file: FilePath, root: FilePath) -> bool:
    """Whether a file lies in a folder once every `..` and symbolic link is followed."""
    try:
        return file.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError, ValueError):  # a loop of links, a name that no file can have
        return False


def _is_file(file: FilePath) -> bool:
    try:
        return file.is_file()
    except OSError:  # a folder that can't be entered, a name that is too long
        return False


def _as_given(file: FilePath, path: FilePath) -> FilePath:
    """The found file as the user would write it: relative to the working directory if the document was given so."""
    try:
        return file if path.is_absolute() else file.relative_to(FilePath.cwd())
    except ValueError:
        return file
