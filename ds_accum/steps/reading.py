"""Step logs -> Steps: each line is checked, and a run that went back to a checkpoint replaces what it does again.

A log is appended to when a run is resumed. Where a step number does not rise, the run has gone back: the steps from
there on that were read before belong to a training that was given up, and are left out. A line that is cut off is what
a killed job leaves behind, and is ignored. Both are noted. Anything else that is no step is an error.

Lines are parsed many at a time and checked a column at a time: most of the time is spent inside `json`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from operator import itemgetter, lt
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from ds_accum.errors import UsageError
from ds_accum.steps.columns import NO_COUNT, Steps
from ds_accum.steps.events import what_is_wrong

__all__ = ["STANDARD_INPUT", "Log", "needed_keys", "read_logs"]

STANDARD_INPUT = "-"

_REMEDY = 'give the file that "log" names in the ds_accum block of the config'

# Few enough that their parsed values stay in the processor's cache.
_LINES_AT_ONCE = 256

# How many of a kind of note are told with their place.
_SHOWN = 3

_NULL: type = type(None)
_COUNT: frozenset[type] = frozenset({int})
_NUMBER: frozenset[type] = frozenset({int, float, str})
_WORDS: dict[Any, float] = {None: math.nan, "nan": math.nan, "inf": math.inf, "-inf": -math.inf}

# Key of a line -> the types it may have.
_COUNTS = {
    "step": _COUNT,
    "ranks": _COUNT,
    "num_tokens": _COUNT | {_NULL},
    "min_rank_tokens": _COUNT | {_NULL},
    "min_rank": _COUNT | {_NULL},
    "max_rank_tokens": _COUNT | {_NULL},
    "max_rank": _COUNT | {_NULL},
}
_NUMBERS = {
    "loss": _NUMBER | {_NULL},
    "grad_norm": _NUMBER | {_NULL},
    "clip_coefficient": _NUMBER | {_NULL},
    "learning_rate": _NUMBER | {_NULL},
    "loss_scale": _NUMBER,
    "weighting_skew": _NUMBER | {_NULL},
    "seconds": _NUMBER,
}
_OTHERS: dict[str, frozenset[type]] = {
    "micro_batches": _COUNT,
    "applied": frozenset({bool}),
    "skipped_because": frozenset({str, _NULL}),
    "events": frozenset({dict}),
    "misuses": frozenset({dict}),
}
_TYPES: dict[str, frozenset[type]] = {**_COUNTS, **_NUMBERS, **_OTHERS}
_EVENTS = ("backwards", "reductions", "norms", "updates", "zeroings")

_values_of = itemgetter(*_TYPES)
_events_of = itemgetter(*_EVENTS)

_EXPECTED = {int: "a whole number", bool: "true or false", dict: "an object"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Log:
    """What was read. `notes` are sentences about what was left out of it."""

    names: tuple[str, ...]
    steps: Steps
    notes: tuple[str, ...]


def needed_keys() -> tuple[str, ...]:
    """The keys without which a line is no step; others are ignored, so that the log of a newer release can be read."""
    return (*_TYPES, *(f"events.{name}" for name in _EVENTS))


def read_logs(paths: Sequence[str], standard_input: BinaryIO | None = None) -> Log:
    """The steps of all files, in the order given; `-` is standard input.

    Raises UsageError where a file can't be read, a line is no step, or there is none at all.
    """
    reader = _Reader()
    names = tuple("standard input" if path == STANDARD_INPUT else path for path in paths)
    for path, name in zip(paths, names, strict=True):
        if path != STANDARD_INPUT:
            try:
                with Path(path).open("rb") as file:
                    reader.read(file, name)
            except OSError as error:
                raise UsageError.because(f"can't read {path}", error) from error
        elif standard_input is None:
            raise UsageError("there is no standard input to read")
        else:
            reader.read(standard_input, name)
    if not len(reader.steps):
        raise UsageError(f"there is no step in {', '.join(names)}", remedy=_REMEDY)
    return Log(names=names, steps=reader.steps, notes=tuple(reader.notes()))


class _Verdicts(dict[tuple[Any, ...], "str | None"]):
    """Counts -> what is wrong with them: in most runs the counts of all steps are the same."""

    def __missing__(self, counts: tuple[Any, ...]) -> str | None:
        verdict = self[counts] = what_is_wrong(*counts)
        return verdict


class _Reader:
    def __init__(self) -> None:
        self.steps = Steps()
        self._verdicts = _Verdicts()
        self._cut_off: list[str] = []
        self._went_back: list[str] = []
        self._left_out = 0

    def read(self, lines: Iterable[bytes], name: str) -> None:
        remaining = iter(lines)
        number = 1
        while chunk := list(islice(remaining, _LINES_AT_ONCE)):
            rows, numbers = self._parsed(chunk, number, name)
            if rows:
                self._add(_columns(rows, numbers, name), numbers, name)
            number += len(chunk)

    def _parsed(self, lines: list[bytes], first: int, name: str) -> tuple[list[Any], Sequence[int]]:
        """What the lines hold, and the number of the line of each."""
        try:
            rows = json.loads((b"[" + b",".join(lines) + b"]").decode())
        except (ValueError, RecursionError):
            rows = []
        if len(rows) == len(lines):
            return rows, range(first, first + len(lines))
        rows, numbers = [], []
        for number, line in enumerate((line.decode("utf-8", "replace") for line in lines), start=first):
            if not line.strip():
                continue
            try:
                rows.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                if not _is_cut_off(line):
                    reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
                    raise UsageError(
                        f"{name}:{number}: not JSON: {reason[:1].lower()}{reason[1:]}, in {_shown(line.strip())}",
                        remedy=_REMEDY,
                    ) from error
                self._cut_off.append(f"{name}:{number}")
            else:
                numbers.append(number)
        return rows, numbers

    def _add(self, columns: dict[str, list[Any]], numbers: Sequence[int], name: str) -> None:
        events = zip(*map(_events_of, columns.pop("events")), strict=True)
        counts = zip(columns.pop("micro_batches"), columns["applied"], *events, strict=True)
        columns["wrong_events"] = list(map(self._verdicts.__getitem__, counts))
        steps = columns["step"]
        for start, end in _rising(steps):
            if len(self.steps) and steps[start] <= self.steps.step[-1]:
                self._go_back(steps[start], f"{name}:{numbers[start]}")
            for key, column in columns.items():
                getattr(self.steps, key).extend(column if (start, end) == (0, len(steps)) else column[start:end])

    def _go_back(self, step: int, place: str) -> None:
        last = self.steps.step[-1]
        self._went_back.append(f"from {last} to {step} at {place}")
        self._left_out += self.steps.forget_from(step)

    def notes(self) -> Iterator[str]:
        """What was left out, a sentence each."""
        if self._went_back:
            steps = "step that was" if self._left_out == 1 else "steps that were"
            yield (
                f"the step number went back {_places(self._went_back)}, as in a run that is resumed from an older"
                f" checkpoint: {self._left_out:,} {steps} written before are left out, what was written last holds"
            )
        if self._cut_off:
            one = len(self._cut_off) == 1
            yield (
                f"{_places(self._cut_off)} {'is' if one else 'are'} cut off, as a killed job leaves"
                f" {'it' if one else 'them'}, and {'is' if one else 'are'} ignored"
            )
        numbers = self.steps.step
        missing = numbers[-1] - numbers[0] + 1 - len(numbers)
        if missing:
            first = next(before + 1 for before, after in pairwise(numbers) if after > before + 1)
            are = "is" if missing == 1 else "are"
            yield f"{missing:,} of the steps {numbers[0]} to {numbers[-1]} {are} missing, the first is {first}"


def _columns(rows: list[Any], numbers: Sequence[int], name: str) -> dict[str, list[Any]]:
    """Key -> the checked values of all rows, nulls and words for numbers replaced; "events" as it is."""
    try:
        values = zip(*map(_values_of, rows), strict=True)
        columns = {key: list(column) for key, column in zip(_TYPES, values, strict=True)}
        events = list(zip(*map(_events_of, columns["events"]), strict=True))
    except (KeyError, TypeError):
        _raise_what_is_missing(rows, numbers, name)
    for key, counts in zip(_EVENTS, events, strict=True):
        if set(map(type, counts)) != _COUNT:
            _raise_wrong_value(f"events.{key}", counts, numbers, name)
    for key, column in columns.items():
        found = set(map(type, column))
        if not found <= _TYPES[key] or (str in found and key in _NUMBERS and not _are_words(column)):
            _raise_wrong_value(key, column, numbers, name)
        if key in _COUNTS:
            if _NULL in found:
                column[:] = [NO_COUNT if value is None else value for value in column]
            if not -(2**63) <= min(column) <= max(column) < 2**63:
                _raise_wrong_value(key, column, numbers, name)
        elif key in _NUMBERS:
            if found != {float}:
                column[:] = [_as_float(value) for value in column]
        elif key == "skipped_because":
            column[:] = [value if value is None or value.isprintable() else ascii(value) for value in column]
        elif key == "misuses" and any(column):
            _check_misuses(column, numbers, name)
            column[:] = [json.dumps(value, sort_keys=True) if value else None for value in column]
        elif key == "misuses":
            column[:] = [None] * len(column)
    return columns


def _check_misuses(column: list[dict[str, Any]], numbers: Sequence[int], name: str) -> None:
    for misuses, number in zip(column, numbers, strict=True):
        for key, times in misuses.items():
            if type(times) is not int:
                _raise_wrong_value(f"misuses.{key}", [times], [number], name)


def _as_float(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return _WORDS[value]


def _are_words(column: list[Any]) -> bool:
    return all(value in _WORDS for value in column if isinstance(value, str))


def _rising(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """The stretches in which the numbers rise, as (start, end)."""
    if all(map(lt, numbers, islice(numbers, 1, None))):
        yield 0, len(numbers)
        return
    start = 0
    for index in range(1, len(numbers) + 1):
        if index == len(numbers) or numbers[index] <= numbers[index - 1]:
            yield start, index
            start = index


def _is_cut_off(line: str) -> bool:
    """Whether this is the beginning of a line that the engine writes: its objects are not closed."""
    return line.startswith("{") and line.count("{") > line.count("}")


def _raise_what_is_missing(rows: list[Any], numbers: Sequence[int], name: str) -> NoReturn:
    for row, number in zip(rows, numbers, strict=True):
        if not isinstance(row, dict):
            raise UsageError(f"{name}:{number}: expected an object, found {_shown(json.dumps(row))}", remedy=_REMEDY)
        missing = [key for key in _TYPES if key not in row]
        events = row.get("events", {})
        if "events" in row and not isinstance(events, dict):
            _raise_wrong_value("events", [events], [number], name)
        if "events" in row:
            missing += [f"events.{key}" for key in _EVENTS if key not in events]
        if missing:
            raise UsageError(f"{name}:{number}: this line lacks {', '.join(missing)}", remedy=_REMEDY)
    raise AssertionError("some row lacks a key")


def _raise_wrong_value(key: str, column: Sequence[Any], numbers: Sequence[int], name: str) -> NoReturn:
    types = _TYPES.get(key, _COUNT)
    for value, number in zip(column, numbers, strict=True):
        is_wrong = type(value) not in types
        is_wrong |= key in _NUMBERS and isinstance(value, str) and value not in _WORDS
        is_wrong |= key in _COUNTS and type(value) is int and not -(2**63) <= value < 2**63
        if is_wrong:
            expected = (
                "a number"
                if key in _NUMBERS
                else next((text for kind, text in _EXPECTED.items() if kind in types), "a text")
            )
            null = " or null" if _NULL in types else ""
            raise UsageError(
                f"{name}:{number}: {key} is {_shown(json.dumps(value))}, not {expected}{null}", remedy=_REMEDY
            )
    raise AssertionError("some value is wrong")


def _shown(text: str) -> str:
    """A piece of a line; errors are made printable where they are printed."""
    return text if len(text) <= 60 else text[:57] + "..."


def _places(places: list[str]) -> str:
    shown = ", ".join(places[:_SHOWN])
    return shown if len(places) <= _SHOWN else f"{shown} and {len(places) - _SHOWN} times more"
