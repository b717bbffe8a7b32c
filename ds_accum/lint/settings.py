"""The settings file: what every run in a project shares.

    ds-accum.toml                       world-size = 64
    [tool.ds-accum] in pyproject.toml   per-file-ignores = {"legacy/*.json" = ["DSA7"]}
    [ds-accum] in setup.cfg             fail-on = warning

The nearest one above the linted file holds, up to the root of the repository (its .git) or of the file system; in one
folder the order is that of this list. Files are not merged. A key that is not known or a value of the wrong type is a
UsageError with its line: a setting is never silently without effect.

Looking for a file costs a few failed opens a folder. A parser is imported once there is something to parse.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from ds_accum.config.spelling import POSSIBLE, closest_word
from ds_accum.errors import UsageError

__all__ = ["Setting", "SettingsFile", "SettingsSearch"]

_TABLES = {"ds-accum.toml": "", "pyproject.toml": "tool.ds-accum", "setup.cfg": "ds-accum"}
# Without these bytes a file of other tools holds no settings of ours, and is not parsed.
_MARKS = {"ds-accum.toml": b"", "pyproject.toml": b"ds-accum", "setup.cfg": b"[ds-accum]"}
_REPOSITORY_MARK = ".git"

# What is taken for ours, as other tools and our own `ds_accum` block spell it, and would be read by nobody.
_MISNAMED_FILE = "ds_accum.toml"
_MISNAMED_TABLES = {
    "pyproject.toml": re.compile(rb"^\s*\[\s*(tool\.ds_accum|ds[-_]accum)\s*[].]", re.MULTILINE),
    "setup.cfg": re.compile(rb"^\[(ds_accum|tool[.:]ds[-_]accum)\]", re.MULTILINE),
}


class Setting(NamedTuple):
    """A value and where it comes from: "--world-size", "pyproject.toml:12"."""

    value: Any
    origin: str


class SettingsFile(NamedTuple):
    """The settings of one file, checked and converted. `folder` is where its patterns start."""

    name: str
    folder: FilePath
    settings: Mapping[str, Setting]

    def excludes(self, path: FilePath) -> bool:
        """Whether `exclude` means this file or folder, given by its absolute path."""
        return any(self.means(pattern, path) for pattern in self.value("exclude", ()))

    def means(self, pattern: str, path: FilePath) -> bool:
        """Whether a pattern of this file means a file or a folder, given by its absolute path."""
        from ds_accum.lint.patterns import matches  # most files have no pattern

        return path.is_relative_to(self.folder) and matches(pattern, path.relative_to(self.folder))

    def value(self, key: str, default: Any) -> Any:
        return self.settings[key].value if key in self.settings else default


class SettingsSearch:
    """Finds the settings file of each folder, and reads it once."""

    def __init__(self) -> None:
        self._known: dict[FilePath, SettingsFile | None] = {}

    def above(self, path: FilePath) -> SettingsFile | None:
        """The settings file for a file or a folder, None if there is none. Raises UsageError if it is wrong."""
        on_the_way: list[FilePath] = []
        found: SettingsFile | None = None
        for folder in FilePath(os.path.abspath(path)).parents:  # noqa: PTH100 - without following links
            if folder in self._known:
                found = self._known[folder]
                break
            on_the_way.append(folder)
            found = _settings_in(folder)
            if found is not None or (folder / _REPOSITORY_MARK).exists():
                break
        self._known.update(dict.fromkeys(on_the_way, found))
        return found


def _settings_in(folder: FilePath) -> SettingsFile | None:
    if (folder / _MISNAMED_FILE).is_file():
        raise UsageError(f"{_shown(folder / _MISNAMED_FILE)} is read by nobody", remedy="call it ds-accum.toml")
    for name, table in _TABLES.items():
        path = folder / name
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
        except OSError as error:
            if table:  # another tool's file, which need not hold anything for us
                continue
            raise UsageError.because(f"can't read {_shown(path)}", error) from error
        misnamed = _MISNAMED_TABLES[name].search(data) if name in _MISNAMED_TABLES else None
        if misnamed is not None:
            raise UsageError(f"{_shown(path)}: [{misnamed[1].decode()}] is read by nobody", remedy=f"call it [{table}]")
        if _MARKS[name] not in data:
            continue
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UsageError(f"{_shown(path)} is not UTF-8 text: {error.reason}") from error
        values = (_ini_values if name.endswith(".cfg") else _toml_values)(text, table, _shown(path))
        if values is not None:
            return SettingsFile(
                name=_shown(path),
                folder=folder,
                settings=dict(_checked(values, _Source(_shown(path), text, table))),
            )
    return None


def _toml_values(text: str, table: str, name: str) -> Mapping[str, Any] | None:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        values: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        sentence = str(error)
        raise UsageError(f"{name} is no TOML: {sentence[:1].lower()}{sentence[1:]}") from error
    for key in filter(None, table.split(".")):
        values = values.get(key) if isinstance(values, dict) else None
    if values is not None and not isinstance(values, dict):
        raise UsageError(f"{name}: {table} must be a table")
    return values


def _ini_values(text: str, table: str, name: str) -> Mapping[str, Any] | None:
    from configparser import Error, RawConfigParser

    parser = RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text, source=name)
    except Error as error:
        raise UsageError(f"{name} can't be read: {' '.join(str(error).split())}") from error
    if not parser.has_section(table):
        return None
    return {key: _Text(value) for key, value in parser.items(table)}


class _Text(str):
    """A value of an INI file, which has no other type than text."""

    __slots__ = ()


class _Source(NamedTuple):
    """A settings file as text, to say where in it a setting is."""

    name: str
    text: str
    table: str

    def place(self, key: str) -> str:
        """ "pyproject.toml:12"; without the line where the setting is written in a way that is not looked for."""
        table = ""
        setting = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*[=:]""")
        for number, line in enumerate(self.text.splitlines(), start=1):
            header = re.match(r"\s*\[+([^\[\]]+)\]", line)
            if header is not None:
                table = re.sub(r"""[\s"']""", "", header[1])
                if table == ".".join(filter(None, (self.table, key))):
                    return f"{self.name}:{number}"
            elif table == self.table and setting.match(line):
                return f"{self.name}:{number}"
        return self.name


# ------------------------------------------------------------------------------------------------ what a setting may be


def _checked(values: Mapping[str, Any], source: _Source) -> Iterator[tuple[str, Setting]]:
    """Each setting, converted. Raises UsageError for the first that is wrong."""
    for key, value in values.items():
        place = source.place(key)
        read = _READERS.get(key)
        if read is None:
            meant = closest_word(key, _READERS, at_least=POSSIBLE)
            known = f"did you mean {meant}?" if meant else f"there are {', '.join(_READERS)}"
            raise UsageError(f'{place}: there is no setting "{key}"', remedy=known)
        try:
            yield key, Setting(read(value), place)
        except UsageError as error:  # a code that is none
            raise UsageError(f"{place}: {error}", remedy=error.remedy) from error
        except ValueError as error:
            raise UsageError(f"{place}: {key} {error}") from error


def _release(value: Any) -> tuple[int, ...]:
    from ds_accum.config.schema import parse_version

    # The number 0.20 would be read as 0.2.
    if not isinstance(value, str):
        raise ValueError(f'must be a release in quotes, such as "0.19.8", not {_what(value)}')
    try:
        return parse_version(value)
    except ValueError as error:
        raise ValueError(f"can't be read: {error}") from error


def _world_sizes(value: Any) -> tuple[int, ...]:
    from ds_accum.config.world_sizes import parse_world_sizes

    if type(value) is int:
        value = str(value)
    elif isinstance(value, list) and value and all(type(item) is int for item in value):
        value = ",".join(map(str, value))
    if not isinstance(value, str):
        raise ValueError(f"must be a number of ranks, several, or a range such as 8-16, not {_what(value)}")
    try:
        return parse_world_sizes(value)
    except ValueError as error:
        raise ValueError(f"can't be read: {error}") from error


def _size(value: Any) -> int:
    if isinstance(value, _Text) and re.fullmatch(r"\d{1,9}", value, re.ASCII):
        value = int(value)
    if type(value) is not int or value < 1:
        raise ValueError(f"must be a number of at least 1, not {_what(value)}")
    return value


def _yes_or_no(value: Any) -> bool:
    answers = {"yes": True, "true": True, "no": False, "false": False}
    if isinstance(value, str) and value.lower() in answers:
        return answers[value.lower()]
    if not isinstance(value, bool):
        raise ValueError(f"must be yes or no, not {_what(value)}")
    return value


def _one_of(choices: Callable[[], tuple[str, ...]]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in choices():
            meant = closest_word(value, choices(), at_least=POSSIBLE) if isinstance(value, str) else None
            hint = f" (did you mean {meant}?)" if meant else ""
            raise ValueError(f"must be one of {', '.join(choices())}, not {_what(value)}{hint}")
        return str(value)

    return read


def _frameworks() -> tuple[str, ...]:
    from ds_accum.config.launch import FRAMEWORK_ALIASES, FRAMEWORKS

    return (*FRAMEWORKS, *FRAMEWORK_ALIASES)


def _framework(value: Any) -> str:
    from ds_accum.config.launch import FRAMEWORK_ALIASES

    name = _one_of(_frameworks)(value)
    return FRAMEWORK_ALIASES.get(name, name)


def _engines() -> tuple[str, ...]:
    from ds_accum.config.launch import ENGINES

    return ENGINES


def _accelerators() -> tuple[str, ...]:
    from ds_accum.config.launch import ACCELERATORS

    return ACCELERATORS


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, _Text):
        return tuple(filter(None, re.split(r"[\s,]+", value)))
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise ValueError(f"must be a list of strings, not {_what(value)}")
    return tuple(value)


def _codes(value: Any) -> tuple[str, ...]:
    from ds_accum.lint.rules import RULES
    from ds_accum.lint.selection import validated

    return validated(_texts(value), RULES)


def _codes_by_pattern(value: Any) -> dict[str, tuple[str, ...]]:
    if isinstance(value, _Text):
        lines = [line.rpartition(":") for line in value.splitlines() if line.strip()]
        if not all(pattern.strip() for pattern, _, _ in lines):
            raise ValueError('must have lines such as "conf/*.json: DSA101, DSA7"')
        value = {pattern.strip(): _Text(codes) for pattern, _, codes in lines}
    if not isinstance(value, dict):
        raise ValueError(f"must be a table of patterns, each with a list of codes, not {_what(value)}")
    read: dict[str, tuple[str, ...]] = {}
    for pattern, codes in value.items():
        try:
            read[pattern] = _codes(codes)
        except UsageError:  # a code that is none
            raise
        except ValueError as error:
            raise ValueError(f'of "{pattern}" {error}') from error
    return read


_READERS: dict[str, Callable[[Any], Any]] = {
    "target-deepspeed": _release,
    "world-size": _world_sizes,
    "tp": _size,
    "pp": _size,
    "cp": _size,
    "sp": _size,
    "ep": _size,
    "framework": _framework,
    "client-optimizer": _yes_or_no,
    "client-scheduler": _yes_or_no,
    "engine": _one_of(_engines),
    "accelerator": _one_of(_accelerators),
    "select": _codes,
    "ignore": _codes,
    "per-file-ignores": _codes_by_pattern,
    "fail-on": _one_of(lambda: ("error", "warning", "info", "never")),
    "exclude": _texts,
}


def _what(value: Any) -> str:
    from ds_accum.lint.wording import what

    return what(str(value) if isinstance(value, _Text) else value)


def _shown(path: FilePath) -> str:
    """A path as a user would write it from here."""
    name = os.path.relpath(path)
    return str(path) if name.startswith(os.path.join("..", "..", "..")) else name  # noqa: PTH118
