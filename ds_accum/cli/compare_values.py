"""The options of `ds-accum compare` that hold more than one word: each read as soon as it is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ds_accum.errors import UsageError

if TYPE_CHECKING:
    from ds_accum.compare.gates import Gate
    from ds_accum.compare.projection import Projection
    from ds_accum.compare.spec import Workload
    from ds_accum.compare.variants import Split
    from ds_accum.compare.varying import Variation

__all__ = [
    "read_baselines",
    "read_engines",
    "read_gates",
    "read_projection",
    "read_splits",
    "read_stages",
    "read_variations",
    "read_workload",
]


def read_stages(context: click.Context, parameter: click.Parameter, text: str) -> tuple[int, ...]:
    """ZeRO stages: "0,2"."""
    words = _words(text)
    for word in words:
        if word not in ("0", "1", "2", "3"):
            raise click.BadParameter(f"ZeRO has the stages 0, 1, 2 and 3, not {word}", context, parameter)
    return tuple(map(int, words))


def read_engines(context: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:
    """Engines of the ZeRO variants."""
    from ds_accum.compare.variants import ENGINES

    return _choices(context, parameter, text, ENGINES)


def read_baselines(context: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:
    """What DeepSpeed is compared with."""
    from ds_accum.compare.variants import BASELINES

    return _choices(context, parameter, text, BASELINES)


def read_splits(_context: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[Split, ...]:
    """Micro batch x accumulation: "4x8,8x4"."""
    from ds_accum.compare.variants import parse_split

    return () if text is None else tuple(map(parse_split, _words(text)))


def read_variations(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[Variation, ...]:
    """Config keys with their values."""
    return _each(texts, _variation)


def read_gates(_context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[Gate, ...]:
    """Limits."""
    return _each(texts, _gate)


def read_projection(context: click.Context, _parameter: click.Parameter, text: str | None) -> Projection | None:
    """World sizes, on links as the eager options beside it say."""
    if text is None:
        return None
    from ds_accum.compare.projection import parse_projection

    gbytes, latency = context.params["link_gbytes"], context.params["link_latency"]
    return parse_projection(text, bytes_per_second=gbytes * 1e9, latency_seconds=latency * 1e-6)


def read_workload(_context: click.Context, _parameter: click.Parameter, text: str | None) -> Workload | None:
    """`file.py:function`, or a folder or config.json of Hugging Face; None for the built-in one."""
    if text is None:
        return None
    from ds_accum.compare.spec import Workload

    file, colon, function = text.rpartition(":")
    if colon and file.endswith(".py"):
        if not function.isidentifier():
            raise UsageError(f"--workload {text}: {function!r} is no name of a function", remedy="as in train.py:build")
        if not Path(file).is_file():
            raise UsageError(f"--workload {text}: there is no file {file}", remedy="give its path from here")
        return Workload(kind="file", path=text)
    if text.endswith(".py"):
        raise UsageError(f"--workload {text} names no function", remedy=f"as in {text}:build")
    path = Path(text)
    if not (path / "config.json" if path.is_dir() else path).is_file():
        raise UsageError(
            f"--workload: there is no {path / 'config.json' if path.is_dir() else f'file or folder {text}'}",
            remedy="give train.py:build, or a Hugging Face folder or config.json on this machine",
        )
    return Workload(kind="huggingface", path=text)


def _variation(text: str) -> Variation:
    from ds_accum.compare.varying import parse_variation

    return parse_variation(text)


def _gate(text: str) -> Gate:
    from ds_accum.compare.gates import parse_gate

    return parse_gate(text)


def _each(texts: tuple[str, ...], read: Callable[[str], Any]) -> tuple[Any, ...]:
    return tuple(map(read, texts))


def _choices(context: click.Context, parameter: click.Parameter, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    words = _words(text)
    if words == ["none"]:
        return ()
    for word in words:
        if word not in known:
            raise click.BadParameter(f"there are {', '.join(known)} and none, not {word!r}", context, parameter)
    return tuple(words)


def _words(text: str) -> list[str]:
    return [word for word in map(str.strip, text.split(",")) if word]
