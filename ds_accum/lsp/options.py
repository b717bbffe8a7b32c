"""What a client says about the launch, in `initializationOptions` or in its settings -> what a command line would say.

    {"worldSize": 64, "framework": "huggingface", "clientOptimizer": true, "deepspeedVersion": "0.18.5"}

Every option is optional, means what it means to `ds-accum lint`, and speaks before the file and its settings file as
there. An unknown one is refused: it would be silently without effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ds_accum.config.launch import ACCELERATORS, ENGINES, FRAMEWORK_ALIASES, FRAMEWORKS, Launch
from ds_accum.config.schema import Version, parse_version
from ds_accum.errors import UsageError
from ds_accum.lint.in_force import LAUNCH_FIELDS, CommandLine

__all__ = ["OPTIONS", "told_by"]


def told_by(options: Any, *, release: tuple[Version, str]) -> CommandLine:
    """One launch a world size, and which settings the options give.

    `release` is the DeepSpeed to judge for unless the options or a settings file name one, and why that one. Raises
    UsageError for an option that there is not or a value of the wrong type, LayoutError where the degrees do not fit
    the world.
    """
    if options is None:
        options = {}
    if not isinstance(options, Mapping):
        raise UsageError(f"the options must be an object, not {options!r}")
    version, version_source = release
    values: dict[str, Any] = {"deepspeed_version": version}
    given: dict[str, str] = {}
    for name, value in options.items():
        if name not in OPTIONS:
            from ds_accum.config.spelling import closest_words

            close = closest_words(str(name), OPTIONS, most=1)
            remedy = f"did you mean {close[0]}?" if close else f"there are {', '.join(OPTIONS)}"
            raise UsageError(f"there is no option {name}", remedy=remedy)
        field, read = OPTIONS[name]
        if value is None:
            continue
        try:
            values[field] = read(value)
        except ValueError as error:
            raise UsageError(f"option {name} {error}") from error
        given |= {setting: name for setting, known in LAUNCH_FIELDS.items() if known == field}
    world_sizes = values.pop("world_size", (None,))
    launches = tuple(Launch(world_size=size, **values) for size in world_sizes)
    for launch in launches:
        launch.layout()
    return CommandLine(launches=launches, version_source=version_source, given=given)


def _size(value: Any) -> int:
    # Numbers that were JSON's may arrive as floats.
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 or value < 1:
        raise ValueError(f"must be a number of at least 1, not {value!r}")
    return int(value)


def _sizes(value: Any) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise ValueError("must be a number of ranks, or several, not []")
    return tuple(sorted({_size(item) for item in values}))


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r}")
    return value


def _version(value: Any) -> Version:
    if not isinstance(value, str):
        raise ValueError(f"must be a release in quotes, not {value!r}")
    try:
        return parse_version(value)
    except ValueError as error:
        raise ValueError(f"can't be read: {error}") from error


def _one_of(choices: tuple[str, ...]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {value!r}")
        return str(value)

    return read


def _framework(value: Any) -> str:
    name = _one_of((*FRAMEWORKS, *FRAMEWORK_ALIASES))(value)
    return FRAMEWORK_ALIASES.get(name, name)


OPTIONS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "worldSize": ("world_size", _sizes),
    "tensorParallelSize": ("tensor_parallel_size", _size),
    "pipelineParallelSize": ("pipeline_parallel_size", _size),
    "contextParallelSize": ("context_parallel_size", _size),
    "sequenceParallelSize": ("sequence_parallel_size", _size),
    "expertParallelSize": ("expert_parallel_size", _size),
    "framework": ("framework", _framework),
    "clientOptimizer": ("client_optimizer", _truth),
    "clientScheduler": ("client_scheduler", _truth),
    "engine": ("engine", _one_of(ENGINES)),
    "accelerator": ("accelerator", _one_of(ACCELERATORS)),
    "deepspeedVersion": ("deepspeed_version", _version),
    "sequenceLength": ("sequence_length", _size),
}
"""Option -> the field of a launch, and what reads its value."""
