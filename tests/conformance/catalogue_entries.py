"""The entries of `catalogue/*.yaml`: known mistakes, each with a config in which a rule finds it, or why none can.

    for entry in read_catalogue(FOLDER):
        entry.row, entry.rules, entry.config, entry.launch

The README of the folder says what an entry holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from ds_accum.config.launch import Launch
from ds_accum.config.schema import parse_version
from ds_accum.lint.origin import PLAIN_TEXT, Origin
from ds_accum.lint.rules import RULES

FOLDER = Path(__file__).parent / "catalogue"

_KEYS = frozenset({"row", "says", "rules", "config", "example", "launch", "left_out"})
_LAUNCH_KEYS = frozenset(item.name for item in fields(Launch))
_ROW = re.compile(r"(config-\d+|wild-\d+|loader-\d+|reports-[A-Z]\d+|clients-[a-z_]+\d*)([a-z]?)")


class CatalogueError(ValueError):
    """An entry that does not say what it should; the message names its file and its row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One known mistake: any of `rules` finds it in `config`, or none does, for the reason `left_out`.

    `text` is the config as a file holds it.
    """

    row: str
    says: str
    file: str
    rules: tuple[str, ...] = ()
    text: str = ""
    launch: Launch = field(default_factory=Launch)
    origin: Origin = PLAIN_TEXT
    left_out: str | None = None

    @property
    def required_row(self) -> str:
        """The row that this is an entry of: `config-73` for `config-73b`."""
        match = _ROW.fullmatch(self.row)
        assert match is not None
        return match[1]


def read_catalogue(folder: Path = FOLDER) -> list[Entry]:
    """All entries of a folder's files, in their order. Raises CatalogueError at the first one that is wrong."""
    return [entry for path in sorted(folder.glob("*.yaml")) for entry in _entries_of(path)]


def entries_in(text: str, *, file: str = "<text>") -> list[Entry]:
    """The entries of one file, given as text."""
    items = yaml.safe_load(text) or []
    if not isinstance(items, list):
        raise CatalogueError(f"{file}: must be a list of entries")
    return [_entry(item, file) for item in items]


def repeated(entries: Iterable[Entry]) -> dict[str, list[str]]:
    """The rows that more than one entry claims, each with the files of those entries."""
    files: dict[str, list[str]] = {}
    for entry in entries:
        files.setdefault(entry.row, []).append(entry.file)
    return {row: names for row, names in files.items() if len(names) > 1}


def _entries_of(path: Path) -> Iterator[Entry]:
    yield from entries_in(path.read_text("utf-8"), file=path.name)


def _entry(item: Any, file: str) -> Entry:
    if not isinstance(item, dict):
        raise CatalogueError(f"{file}: an entry must be a mapping, not {item!r}")
    row = str(item.get("row"))
    where = f"{file}, {row}"
    if _ROW.fullmatch(row) is None:
        raise CatalogueError(f"{where}: that is no row")
    if unknown := item.keys() - _KEYS:
        raise CatalogueError(f"{where}: unknown keys {', '.join(sorted(map(str, unknown)))}")
    if not isinstance(item.get("says"), str) or not item["says"].strip():
        raise CatalogueError(f"{where}: `says` must say what the row is about")
    if "left_out" in item:
        return _left_out(item, row, file, where)
    rules = item.get("rules")
    if not isinstance(rules, list) or not rules:
        raise CatalogueError(f"{where}: needs `rules`, or a reason why it is `left_out`")
    if missing := [code for code in rules if code not in RULES.by_code]:
        raise CatalogueError(f"{where}: no rule {', '.join(map(str, missing))}")
    text, launch, origin = _input(item, rules, where)
    return Entry(row=row, says=item["says"], file=file, rules=tuple(rules), text=text, launch=launch, origin=origin)


def _left_out(item: Mapping[str, Any], row: str, file: str, where: str) -> Entry:
    reason = item["left_out"]
    if not isinstance(reason, str) or not reason.strip():
        raise CatalogueError(f"{where}: `left_out` must say why")
    if item.keys() & {"rules", "config", "example", "launch"}:
        raise CatalogueError(f"{where}: what is left out has neither rules nor a config")
    return Entry(row=row, says=item["says"], file=file, left_out=reason)


def _input(item: Mapping[str, Any], rules: list[str], where: str) -> tuple[str, Launch, Origin]:
    if ("config" in item) == ("example" in item):
        raise CatalogueError(f"{where}: needs either a `config` or `example: true`")
    if "example" in item:
        if item["example"] is not True or "launch" in item:
            raise CatalogueError(f"{where}: `example` is true, and brings its own launch")
        example = RULES.by_code[rules[0]].bad[0]
        return example.config, example.launch, example.origin
    if not isinstance(item["config"], str):
        raise CatalogueError(f"{where}: `config` must be the text of a config")
    return item["config"], _launch(item.get("launch", {}), where), PLAIN_TEXT


def _launch(arguments: Any, where: str) -> Launch:
    if not isinstance(arguments, dict) or arguments.keys() - _LAUNCH_KEYS:
        raise CatalogueError(f"{where}: `launch` holds keyword arguments of Launch, not {arguments!r}")
    version = arguments.get("deepspeed_version")
    launch = Launch(**{**arguments, "deepspeed_version": None})
    return launch if version is None else replace(launch, deepspeed_version=parse_version(str(version)))
