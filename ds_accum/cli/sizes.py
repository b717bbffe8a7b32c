"""Sizes on the command line."""

from __future__ import annotations

import click

__all__ = ["read_size", "read_world_sizes"]


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
