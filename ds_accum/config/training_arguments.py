"""Hugging Face's TrainingArguments, as far as they decide what becomes of a DeepSpeed config.

    arguments = TrainingArguments.of({"per_device_train_batch_size": 4, "bf16": True})
    arguments["per_device_train_batch_size"]       # 4
    arguments["gradient_accumulation_steps"]       # 1, the default

They come from a file (`read_arguments_file`), which is what `TrainingArguments.to_json_string` writes or a YAML file
that has arguments of these names among others, and from single words of the command line (`read_argument`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from ds_accum.config.document import Syntax, read_bytes
from ds_accum.config.spelling import POSSIBLE, closest_word
from ds_accum.config.wording import quoted, shortened
from ds_accum.errors import UsageError

__all__ = ["ARGUMENTS", "TrainingArguments", "read_argument", "read_arguments_file"]


class Argument(NamedTuple):
    """One argument: the type of its values, and its default in transformers 5.24."""

    type: type
    default: Any


ARGUMENTS: Mapping[str, Argument] = {
    "per_device_train_batch_size": Argument(int, 8),
    "gradient_accumulation_steps": Argument(int, 1),
    "max_grad_norm": Argument(float, 1.0),
    "learning_rate": Argument(float, 5e-5),
    "adam_beta1": Argument(float, 0.9),
    "adam_beta2": Argument(float, 0.999),
    "adam_epsilon": Argument(float, 1e-8),
    "weight_decay": Argument(float, 0.0),
    "warmup_steps": Argument(float, 0),
    # Gone from 5.0 on, where a `warmup_steps` below 1 is the ratio.
    "warmup_ratio": Argument(float, 0.0),
    "max_steps": Argument(int, -1),
    "fp16": Argument(bool, False),
    "bf16": Argument(bool, False),
    "fp16_full_eval": Argument(bool, False),
    "bf16_full_eval": Argument(bool, False),
    "optim": Argument(str, "adamw_torch_fused"),
    "lr_scheduler_type": Argument(str, "linear"),
    "average_tokens_across_devices": Argument(bool, True),
}

# Axolotl's own names of some of them; its values mean the same.
_OTHER_NAMES = {
    "micro_batch_size": "per_device_train_batch_size",
    "optimizer": "optim",
    "lr_scheduler": "lr_scheduler_type",
}

_POSITIVE = ("per_device_train_batch_size", "gradient_accumulation_steps")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingArguments:
    """The arguments of one training.

    `given` are those that somebody wrote down, `sources` where each of them stands. `unknown` are those whose value
    nobody can tell before the start, such as a bf16 that is left to the hardware.
    """

    given: Mapping[str, Any]
    sources: Mapping[str, str] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()

    @classmethod
    def of(cls, given: Mapping[str, Any], source: str = "--hf-args") -> TrainingArguments:
        """Arguments that all come from one place. Raises UsageError as `read_argument` does."""
        values, unknown = {}, set()
        for name, value in given.items():
            if value == "auto":
                unknown.add(name)
            elif value is not None:
                values[name] = _value_of(name, value, source)
        return cls(given=values, sources=dict.fromkeys(values, source), unknown=frozenset(unknown))

    def __getitem__(self, name: str) -> Any:
        return self.given[name] if name in self.given else ARGUMENTS[name].default

    def is_known(self, *names: str) -> bool:
        """Whether it can be told what all of these are."""
        return self.unknown.isdisjoint(names)

    def asks_for(self, name: str) -> bool:
        """Whether somebody wrote this argument down, with another value than its default."""
        return name in self.given and self.given[name] != ARGUMENTS[name].default

    def origin(self, name: str) -> str:
        """Where the value of an argument comes from: "--hf-args", "its default"."""
        return self.sources.get(name, "--hf-args") if name in self.given else "its default"

    def over(self, others: TrainingArguments) -> TrainingArguments:
        """These, and the others where these say nothing."""
        return TrainingArguments(
            given={**others.given, **self.given},
            sources={**others.sources, **self.sources},
            unknown=(others.unknown - self.given.keys()) | self.unknown,
        )


def read_arguments_file(path: FilePath) -> TrainingArguments:
    """The arguments in a JSON or YAML file; names that are no argument of these are somebody else's.

    Raises UsageError for a file that can't be read, that holds no mapping or none of the arguments, for a value of the
    wrong type, and for a name that is one letter away from an argument which the file does not give.
    """
    source = "--hf-args"
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise UsageError.because(f"{source}: can't read {path}", error) from error
    is_json = path.suffix.lower() == ".json" or (
        path.suffix.lower() not in (".yaml", ".yml") and data.lstrip()[:1] == b"{"
    )
    document = read_bytes(data, filename=str(path), syntax=Syntax.JSON if is_json else Syntax.YAML)
    if document.problems:
        problem = document.problems[0]
        line = document.position(problem.span.start).line
        raise UsageError(f"{source}: {path}, line {line}: {problem.message}", remedy=problem.help)
    values: dict[str, Any] = {str(name): value for name, value in document.value.items()}
    found = {name: values[name] for name in ARGUMENTS if name in values}
    for other, name in _OTHER_NAMES.items():
        if other in values and name not in found and isinstance(values[other], int | float | str):
            found[name] = values[other]
    for name in values.keys() - ARGUMENTS.keys() - _OTHER_NAMES.keys():
        meant = closest_word(name, sorted(ARGUMENTS.keys() - found.keys()), at_least=0.9)
        if meant is not None:
            raise UsageError(f"{source}: {path} has no {meant}, but {quoted(name)}", remedy=f'did you mean "{meant}"?')
    if not found:
        raise UsageError(
            f"{source}: {path} gives none of the arguments that a DeepSpeed config is filled in from",
            remedy="write them as TrainingArguments.to_json_string does, or with --hf-arg NAME=VALUE",
        )
    return TrainingArguments.of(found, source)


def read_argument(word: str) -> TrainingArguments:
    """One argument given as NAME=VALUE. Raises UsageError for an unknown name or a value of the wrong type."""
    name, separator, text = word.partition("=")
    name = name.strip().lstrip("-").replace("-", "_")
    if not separator or not name:
        raise UsageError(f"--hf-arg: {shortened(word)} is not NAME=VALUE")
    if name not in ARGUMENTS:
        meant = closest_word(name, ARGUMENTS, at_least=POSSIBLE)
        raise UsageError(
            f"--hf-arg: nothing in a DeepSpeed config comes from an argument {quoted(name)}",
            remedy=f'did you mean "{meant}"?' if meant else f"it takes {', '.join(ARGUMENTS)}",
        )
    return TrainingArguments.of({name: text.strip()}, "--hf-arg")


def _value_of(name: str, value: Any, source: str) -> Any:
    """A value as TrainingArguments holds it: numbers and booleans may be given as text."""
    kind = ARGUMENTS[name].type
    read = _READERS[kind](value)
    if read is None or (name in _POSITIVE and read < 1):
        expected = "a whole number from 1 on" if name in _POSITIVE else _KINDS[kind]
        raise UsageError(f"{source}: {name} must be {expected}, but is {shortened(str(value))}")
    return read


def _whole_number(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number == int(number) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value if abs(value) < 1e300 else None
    try:
        number = float(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return number if number is not None and abs(number) < 1e300 else None


def _truth(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    # HfArgumentParser's `string_to_bool`.
    words = {"true": True, "yes": True, "1": True, "t": True, "y": True}
    words |= {"false": False, "no": False, "0": False, "f": False, "n": False}
    return words.get(value.lower()) if isinstance(value, str) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


_READERS: Mapping[type, Any] = {int: _whole_number, float: _number, bool: _truth, str: _text}
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
