"""What a user names -> the documents to lint: files, folders, globs, standard input, base64, and the files those name.

    a file          is linted, whatever it holds
    a folder        its .json, .hjson, .yaml and .yml files that hold a DeepSpeed config, in sorted order
    a glob          what a shell would make of it: each match is a file or a folder that the user named
    -               standard input
    anything else   a config in base64, as DeepSpeed takes a string that names no file
    in all of them  the config file that an Accelerate YAML names, launched as the YAML says

What can't be linted becomes a UsageError among the problems, and the rest is linted all the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from stat import S_ISDIR
from typing import BinaryIO, NamedTuple

from ds_accum.config.document import DEFAULT_LIMITS, Document, read_bytes
from ds_accum.config.embedded import looks_like_deepspeed, may_hold_deepspeed, number_of_processes
from ds_accum.config.launch import Launch
from ds_accum.config.references import find_reference
from ds_accum.config.spelling import closest_words
from ds_accum.errors import LayoutError, UsageError
from ds_accum.lint.origin import PLAIN_TEXT, Origin

__all__ = ["STANDARD_INPUT", "Target", "Targets", "find_targets"]

STANDARD_INPUT = "-"

_Identity = tuple[int, int]  # device and inode

_EXTENSIONS = (".json", ".hjson", ".yaml", ".yml")
_GLOB = re.compile(r"[*?\[]")

# Folders that hold other people's files, or none that were written by hand.
_SKIPPED_FOLDERS = frozenset({".git", ".hg", ".svn", ".nox", ".tox", "__pycache__", "node_modules", "site-packages"})
# What makes a folder a virtual environment, whatever its name.
_ENVIRONMENT_MARK = "pyvenv.cfg"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A document to lint, and the Accelerate YAML files that launch it.

    `path` is the file that holds it; None for standard input, for a file that only that leads to, and for base64.
    """

    document: Document
    path: FilePath | None = None
    is_standard_input: bool = False
    origin: Origin = PLAIN_TEXT
    launched_by: tuple[Document, ...] = ()

    def launches(self, launches: Sequence[Launch]) -> list[Launch]:
        """`launches` with what the YAML files say where they leave it open: the framework and the world size.

        Raises LayoutError where the degrees of a launch do not fit the world size that a YAML file gives it.
        """
        completed: dict[Launch, None] = {}
        for launch in launches:
            if launch.framework is None and self.launched_by:
                launch = replace(launch, framework="accelerate")
            for launcher in self.launched_by or (self.document,):
                completed[_on_processes_of(launcher, launch)] = None
        return list(completed)


def _on_processes_of(launcher: Document, launch: Launch) -> Launch:
    """The launch with the world size that an Accelerate YAML gives it, if it has none yet."""
    world_size = number_of_processes(launcher)
    if launch.world_size is not None or world_size is None:
        return launch
    completed = replace(launch, world_size=world_size)
    try:
        completed.layout()
    except LayoutError as error:
        raise LayoutError(f"num_processes in {launcher.filename}: {error}", remedy=error.remedy) from error
    return completed


class Targets(NamedTuple):
    """The documents in the order in which they were named, and what was named in vain."""

    found: tuple[Target, ...]
    problems: tuple[UsageError, ...]


def find_targets(
    names: Iterable[str],
    *,
    standard_input: BinaryIO | None = None,
    standard_input_name: str | None = None,
    is_excluded: Callable[[FilePath], bool] | None = None,
) -> Targets:
    """The documents behind everything that a user names.

    `standard_input_name` is the path of the file whose text standard input holds, if it is one's. `is_excluded` says
    which files and folders are left out of the folders that are named; what is named itself is not asked about.
    """
    search = _Search(is_excluded)
    for name in dict.fromkeys(names):
        if name == STANDARD_INPUT:
            search.add_standard_input(standard_input, standard_input_name)
        else:
            search.add(name)
    return Targets(found=tuple(search.found), problems=tuple(search.problems))


class _Search:
    def __init__(self, is_excluded: Callable[[FilePath], bool] | None) -> None:
        self._is_excluded = is_excluded
        self.found: list[Target] = []
        self.problems: list[UsageError] = []
        # Identity -> index in `found`: a file is linted once, however often and by whatever links it is named.
        self._known: dict[_Identity, int] = {}

    def add(self, name: str) -> None:
        """A file or a folder, else a glob, else base64."""
        if not name:
            # The system takes it for the folder that one is in.
            self.problems.append(UsageError("a path is empty", remedy="is the variable set that it comes from?"))
            return
        path = FilePath(name)
        try:
            is_folder = S_ISDIR(path.stat().st_mode)
        except PermissionError as error:
            self.problems.append(_unreadable(path, error))
        except (OSError, ValueError):  # no such file, or no possible name of one
            if _GLOB.search(name):
                self._add_matches(name)
            else:
                self._add_base64(name)
        else:
            if is_folder:
                self._add_folder(path)
            else:
                self._add_file(path)

    def add_standard_input(self, stream: BinaryIO | None, name: str | None) -> None:
        if stream is None:
            self.problems.append(UsageError("there is no standard input to read"))
            return
        data = stream.read(DEFAULT_LIMITS.size + 1)
        document = read_bytes(data, filename="<stdin>" if name is None else name)
        self._add_document(document, None if name is None else FilePath(name), is_file=False)

    def _add_file(
        self,
        path: FilePath,
        *,
        launched_by: tuple[Document, ...] = (),
        only_configs: bool = False,
        is_named_by_file: bool = True,
    ) -> bool:
        """Whether the file is linted; `only_configs` leaves out what holds none."""
        try:
            identity, data = _read(path)
        except (OSError, ValueError) as error:
            self.problems.append(_unreadable(path, error))
            return False
        index = self._known.get(identity)
        if index is not None:
            known = self.found[index]
            known_path = known.path or (path if is_named_by_file else None)
            self.found[index] = replace(known, launched_by=known.launched_by + launched_by, path=known_path)
            return True
        if only_configs and not may_hold_deepspeed(data):
            return False
        document = read_bytes(data, filename=str(path))
        if only_configs and not looks_like_deepspeed(document):
            return False
        self._known[identity] = len(self.found)
        self._add_document(document, path, launched_by, is_file=is_named_by_file)
        return True

    def _add_document(
        self, document: Document, path: FilePath | None, launched_by: tuple[Document, ...] = (), *, is_file: bool
    ) -> None:
        """A document, and the config file that it names, if it has a path; `is_file` if it was read from there."""
        reference = None if path is None else find_reference(document, path)
        self.found.append(
            Target(
                document=document,
                path=path if is_file else None,
                is_standard_input=not is_file and not launched_by,
                origin=Origin(reference=reference),
                launched_by=launched_by,
            )
        )
        # What a launched file names in its turn is nothing that Accelerate would follow.
        if reference is not None and reference.path is not None and not launched_by:
            self._add_file(reference.path, launched_by=(document,), is_named_by_file=is_file)

    def _add_folder(self, folder: FilePath) -> None:
        looked_at = linted = 0
        for path in self._files_below(folder):
            looked_at += 1
            linted += self._add_file(path, only_configs=True)
        if not linted:
            files = "1 file" if looked_at == 1 else f"{looked_at:,} files"
            self.problems.append(
                UsageError(
                    f"there is no DeepSpeed config in {folder}: looked at {files} ({', '.join(_EXTENSIONS)})",
                    remedy="name a file itself to lint it, whatever it holds",
                )
            )

    def _files_below(self, folder: FilePath) -> Iterator[FilePath]:
        def note(error: OSError) -> None:
            self.problems.append(_unreadable(FilePath(error.filename), error))

        for base, folders, files in os.walk(folder, onerror=note):
            if _ENVIRONMENT_MARK in files:
                folders.clear()
                continue
            folders[:] = sorted(name for name in set(folders) - _SKIPPED_FOLDERS if self._is_wanted(base, name))
            for name in sorted(files):
                path = FilePath(base, name)
                # A pipe would be waited for, a link to nowhere was not named by anybody.
                if name.lower().endswith(_EXTENSIONS) and path.is_file() and self._is_wanted(base, name):
                    yield path

    def _is_wanted(self, folder: str, name: str) -> bool:
        return self._is_excluded is None or not self._is_excluded(FilePath(folder, name))

    def _add_matches(self, pattern: str) -> None:
        import glob  # only where a shell left a pattern as it was

        matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - Path.glob refuses absolute patterns
        for match in matches:
            self.add(match)
        if not matches:
            self.problems.append(UsageError(f"no file matches {pattern}"))

    def _add_base64(self, word: str) -> None:
        from ds_accum.config.base64_config import read_base64

        document = read_base64(word)
        if document is None:
            self.problems.append(_missing(word))
        else:
            self.found.append(Target(document=document, origin=Origin(is_base64=True)))


def _read(path: FilePath) -> tuple[_Identity, bytes]:
    """What a file is to the system, and its bytes, one more than a config may have at most."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        return (status.st_dev, status.st_ino), file.read(DEFAULT_LIMITS.size + 1)


def _unreadable(path: FilePath, error: Exception) -> UsageError:
    return UsageError.because(f"can't read {path}", error)


def _missing(name: str) -> UsageError:
    """That there is no such file, with the names nearby that may have been meant."""
    path = FilePath(name)
    message = f"there is no file or folder {name if len(name) <= 100 else name[:97] + '...'}"
    try:
        # The longest part of the path that does exist, and what it holds.
        folder = next(parent for parent in path.parents if parent.is_dir())
        misspelt, *rest = path.parts[len(folder.parts) :]
        there = sorted(entry.name for entry in folder.iterdir())
        if misspelt in there:
            return UsageError(f"{name} is a link to what is not there")
    except (OSError, StopIteration, ValueError):
        return UsageError(message)
    # Extensions are alike in everything.
    stems: dict[str, list[str]] = {}
    for entry in there:
        stems.setdefault(FilePath(entry).stem, []).append(entry)
    close = closest_words(FilePath(misspelt).stem, stems, most=3)
    meant = [str(folder.joinpath(entry, *rest)) for stem in close for entry in stems[stem]][:3]
    return UsageError(message, remedy=f"did you mean {' or '.join(meant)}?" if meant else None)
