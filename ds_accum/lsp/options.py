"""What a client says about the launch, in `initializationOptions` or in its settings -> the launches to judge for.

    {"worldSize": 64, "framework": "huggingface", "clientOptimizer": true, "deepspeedVersion": "0.18.5"}

Every option is optional, and means what it means to `ds-accum lint`. An unknown one is refused: it would be silently
without effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ds_accum.config.launch import Launch
from ds_accum.config.schema import Version, parse_version
from ds_accum.errors import UsageError

__all__ = ["OPTIONS", "launches_of"]

_FRAMEWORKS = ("raw", "huggingface", "accelerate", "lightning", "gpt-neox")
_ENGINES = ("stock", "ds-accum")


def launches_of(options: Any, *, installed: Version | None) -> tuple[Launch, ...]:
    """One launch a world size. `installed` is the DeepSpeed to judge for unless the options name one.

    Raises UsageError for an option that there is not or a value of the wrong type, LayoutError where the degrees do not
    fit the world.
    """
    if options is None:
        options = {}
    if not isinstance(options, Mapping):
        raise UsageError(f"the options must be an object, not {options!r}")
    known = ", ".join(OPTIONS)
    given: dict[str, Any] = {"deepspeed_version": installed}
    for name, value in options.items():
        if name not in OPTIONS:
            raise UsageError(f"there is no option {name}", remedy=f"there are {known}")
        field, read = OPTIONS[name]
        if value is None:
            continue
        try:
            given[field] = read(value)
        except ValueError as error:
            raise UsageError(f"option {name} {error}") from error
    world_sizes = given.pop("world_size", (None,))
    launches = tuple(Launch(world_size=size, **given) for size in world_sizes)
    for launch in launches:
        launch.layout()
    return launches


def _size(value: Any) -> int:
    # Numbers that were JSON's may arrive as floats.
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 1:
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


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {value!r}")
    return value


OPTIONS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "worldSize": ("world_size", _sizes),
    "tensorParallelSize": ("tensor_parallel_size", _size),
    "pipelineParallelSize": ("pipeline_parallel_size", _size),
    "contextParallelSize": ("context_parallel_size", _size),
    "sequenceParallelSize": ("sequence_parallel_size", _size),
    "expertParallelSize": ("expert_parallel_size", _size),
    "framework": ("framework", _one_of(_FRAMEWORKS)),
    "clientOptimizer": ("client_optimizer", _truth),
    "clientScheduler": ("client_scheduler", _truth),
    "engine": ("engine", _one_of(_ENGINES)),
    "accelerator": ("accelerator", _word),
    "deepspeedVersion": ("deepspeed_version", _version),
    "sequenceLength": ("sequence_length", _size),
}
"""Option -> the field of a launch, and what reads its value."""
