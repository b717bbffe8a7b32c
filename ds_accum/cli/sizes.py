"""Numbers on the command line, each checked as soon as it is read."""

from __future__ import annotations

import math

import click

__all__ = [
    "read_at_least_zero",
    "read_count",
    "read_memory",
    "read_more_than_zero",
    "read_size",
    "read_stage",
    "read_world_sizes",
]


def read_world_sizes(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    """The callback of an option that takes several world sizes."""
    if text is None:
        return None
    from ds_accum.config.world_sizes import parse_world_sizes

    try:
        return parse_world_sizes(text)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def read_size(context: click.Context, parameter: click.Parameter, size: int | None) -> int | None:
    """The callback of an option that takes one size of at least 1."""
    if size is not None and size < 1:
        raise click.BadParameter(f"must be at least 1, not {size}", context, parameter)
    return size


def read_stage(context: click.Context, parameter: click.Parameter, stage: int) -> int:
    """The callback of an option that takes a ZeRO stage."""
    if stage not in range(4):
        raise click.BadParameter(f"ZeRO has the stages 0, 1, 2 and 3, not {stage}", context, parameter)
    return stage


def read_at_least_zero(context: click.Context, parameter: click.Parameter, number: float) -> float:
    """The callback of an option that takes a finite number of at least 0."""
    if not (math.isfinite(number) and number >= 0):
        raise click.BadParameter(f"must be at least 0, not {number:g}", context, parameter)
    return number


def read_more_than_zero(context: click.Context, parameter: click.Parameter, number: float) -> float:
    """The callback of an option that takes a finite number above 0."""
    if not (math.isfinite(number) and number > 0):
        raise click.BadParameter(f"must be more than 0, not {number:g}", context, parameter)
    return number


def read_count(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:  # noqa: ARG001
    """The callback of an option that takes a number as people write it: 7B, 4Mi."""
    if text is None:
        return None
    from ds_accum.plan.quantities import read_quantity

    return read_quantity(text, name=parameter.opts[0])


def read_memory(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:  # noqa: ARG001
    """The callback of an option that takes the size of a memory: 80GB, 74.5GiB."""
    if text is None:
        return None
    from ds_accum.plan.quantities import LEAST_MEMORY, read_bytes

    return read_bytes(text, name=parameter.opts[0], least=LEAST_MEMORY)
