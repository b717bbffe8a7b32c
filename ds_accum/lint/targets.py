"""What a user names -> the documents to lint: files, folders, globs, standard input, base64, and the files those name.

    a file          is linted, whatever it holds
    a folder        its .json, .hjson, .yaml and .yml files that hold a DeepSpeed config, in sorted order
    a glob          what a shell would make of it: each match is a file or a folder named by the user
    -               standard input, once
    anything else   a config in base64, as DeepSpeed takes a string that names no file
    in all of them  the config file that an Accelerate YAML names, launched as the YAML says

What can't be linted becomes a UsageError in `problems`, and the rest is linted all the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import BinaryIO

from ds_accum.config.document import DEFAULT_LIMITS, Document, read_bytes
from ds_accum.config.embedded import looks_like_deepspeed, may_hold_deepspeed, number_of_processes
from ds_accum.config.launch import Launch
from ds_accum.config.references import find_reference
from ds_accum.errors import UsageError
from ds_accum.lint.origin import Origin

__all__ = ["Target", "Targets", "find_targets"]

STANDARD_INPUT = "-"

_EXTENSIONS = (".json", ".hjson", ".yaml", ".yml")
_GLOB = re.compile(r"[*?\[]")

# Folders that hold other people's files, or none that were written by hand.
_SKIPPED_FOLDERS = frozenset({".git", ".hg", ".svn", "node_modules", "site-packages", "__pycache__", ".tox", ".nox"})
# What makes a folder a virtual environment, whatever its name.
_ENVIRONMENT_MARK = "pyvenv.cfg"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A document to lint, and the Accelerate YAML files that launch it."""

    document: Document
    origin: Origin = Origin()
    launched_by: tuple[Document, ...] = ()

    def launches(self, launches: Sequence[Launch]) -> list[Launch]:
        """`launches` with what the YAML files say where they leave it open: the framework and the world size."""
        adapted: dict[Launch, None] = {}
        for launch in launches:
            for launcher in self.launched_by or (self.document,):
                adapted[
                    replace(
                        launch,
                        framework=launch.framework or ("accelerate" if self.launched_by else None),
                        world_size=launch.world_size or number_of_processes(launcher),
                    )
                ] = None
        return list(adapted)


@dataclass(slots=True)
class Targets:
    """What was found, in the order in which it was named."""

    found: list[Target] = field(default_factory=list)
    problems: list[UsageError] = field(default_factory=list)
    _places: dict[FilePath, int] = field(default_factory=dict)
    """Real path -> index in `found`: a file is linted once, however often it is named."""

    def add_file(self, path: FilePath, *, launched_by: tuple[Document, ...] = ()) -> None:
        """A file, and the config file that it names."""
        try:
            real = path.resolve()
            if real in self._places:
                index = self._places[real]
                known = self.found[index]
                self.found[index] = replace(known, launched_by=known.launched_by + launched_by)
                return
            data = _read(path)
        except (OSError, RuntimeError, ValueError) as error:
            self.problems.append(_unreadable(path, error))
            return
        self._places[real] = len(self.found)
        self._add(read_bytes(data, filename=str(path)), path, launched_by)

    def add_text(self, data: bytes, *, path: FilePath | None, filename: str) -> None:
        """A text that is no file; `path` is where it would be one."""
        self._add(read_bytes(data, filename=filename), path, ())

    def add_folder(self, folder: FilePath) -> None:
        """The DeepSpeed configs below a folder; it is a problem if there is none."""
        looked_at, found = 0, False
        for path in self._files_below(folder):
            looked_at += 1
            if self._holds_config(path):
                found = True
                self.add_file(path)
        if not found:
            self.problems.append(
                UsageError(
                    f"there is no DeepSpeed config in {folder}"
                    f" ({looked_at} {'file' if looked_at == 1 else 'files'} with {', '.join(_EXTENSIONS)} looked at)",
                    remedy="name a file itself to lint it whatever it holds",
                )
            )

    def _add(self, document: Document, path: FilePath | None, launched_by: tuple[Document, ...]) -> None:
        reference = None if path is None else find_reference(document, path)
        self.found.append(
            Target(document=document, origin=Origin(reference=reference), launched_by=launched_by)
        )
        if reference is not None and reference.path is not None:
            self.add_file(reference.path, launched_by=(document,))

    def _files_below(self, folder: FilePath) -> Iterator[FilePath]:
        def note(error: OSError) -> None:
            self.problems.append(_unreadable(FilePath(error.filename), error))

        for base, folders, files in os.walk(folder, onerror=note):
            if _ENVIRONMENT_MARK in files:
                folders.clear()
                continue
            folders[:] = sorted(set(folders) - _SKIPPED_FOLDERS)
            for name in sorted(files):
                if name.lower().endswith(_EXTENSIONS):
                    yield FilePath(base, name)

    def _holds_config(self, path: FilePath) -> bool:
        try:
            data = _read(path)
        except OSError as error:
            self.problems.append(_unreadable(path, error))
            return False
        return may_hold_deepspeed(data) and looks_like_deepspeed(read_bytes(data, filename=str(path)))


def find_targets(
    names: Iterable[str], *, standard_input: BinaryIO | None = None, standard_input_name: str | None = None
) -> Targets:
    """The documents of everything that a user names. `standard_input_name` is what a text from there is treated as."""
    targets = Targets()
    for name in dict.fromkeys(names):
        if name == STANDARD_INPUT:
            _add_standard_input(targets, standard_input, standard_input_name)
            continue
        path = FilePath(name)
        try:
            exists = path.exists()
        except (OSError, ValueError):  # a folder that can't be entered, a word too long for a name
            exists = False
        if exists and path.is_dir():
            targets.add_folder(path)
        elif exists:
            targets.add_file(path)
        elif _GLOB.search(name):
            _add_matches(targets, name)
        else:
            _add_base64(targets, name)
    return targets


def _add_standard_input(targets: Targets, stream: BinaryIO | None, name: str | None) -> None:
    if stream is None:
        targets.problems.append(UsageError("there is no standard input to read"))
        return
    try:
        data = stream.read(DEFAULT_LIMITS.size + 1)
    except OSError as error:
        targets.problems.append(_unreadable("standard input", error))
        return
    targets.add_text(data, path=None if name is None else FilePath(name), filename=name or "<stdin>")


def _add_matches(targets: Targets, pattern: str) -> None:
    import glob  # only where a pattern was quoted

    matches = sorted(glob.glob(pattern, recursive=True))
    if not matches:
        targets.problems.append(UsageError(f"no file matches {pattern}"))
    for match in map(FilePath, matches):
        if match.is_dir():
            targets.add_folder(match)
        else:
            targets.add_file(match)


def _add_base64(targets: Targets, word: str) -> None:
    from ds_accum.config.base64_config import read_base64

    document = read_base64(word)
    if document is not None:
        targets.found.append(Target(document=document, origin=Origin(is_base64=True)))
        return
    targets.problems.append(_missing(word))


def _read(path: FilePath) -> bytes:
    """The bytes of a file, as far as a config may reach: what is longer is recognised by its first byte too many."""
    with path.open("rb") as file:
        return file.read(DEFAULT_LIMITS.size + 1)


def _unreadable(path: FilePath | str, error: Exception) -> UsageError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return UsageError(f"can't read {path}: {reason[:1].lower()}{reason[1:]}")


def _missing(name: str) -> UsageError:
    """The problem that there is no such file, with the names that it may have been meant for."""
    from difflib import get_close_matches  # a slow import, needed only here

    shown = name if len(name) <= 100 else f"{name[:97]}..."
    path = FilePath(name)
    try:
        # The longest part of the path that does exist, and what it holds.
        folder = next(parent for parent in path.parents if parent.is_dir())
        misspelt = path.parts[len(folder.parts)]
        there = sorted(entry.name for entry in folder.iterdir())
    except (OSError, StopIteration, ValueError):
        return UsageError(f"there is no file or folder {shown}")
    close = get_close_matches(misspelt, there, n=3, cutoff=0.6)
    rest = path.parts[len(folder.parts) + 1 :]
    meant = [str(folder.joinpath(entry, *rest)) for entry in close]
    return UsageError(
        f"there is no file or folder {shown}",
        remedy=f"did you mean {' or '.join(meant)}?" if meant else None,
    )
