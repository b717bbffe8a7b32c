"""`ds_accum.initialize`: a drop-in for `deepspeed.initialize`, whose engine weights gradients by tokens.

    engine, optimizer, loader, scheduler = ds_accum.initialize(model=model, config="ds_config.json")

Everything is DeepSpeed's own until it returns; then the engine's class is exchanged. The settings are those of the
config's `ds_accum` block; without it the defaults are right. DS_ACCUM_DISABLE=1 gives back the stock engine, which has
none of the calls that ds-accum adds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ds_accum.config.base64_config import read_base64
from ds_accum.config.block import BLOCK, DSAccumBlock, read_block
from ds_accum.config.document import read_bytes
from ds_accum.config.model import DeepSpeedConfig
from ds_accum.config.support import engine_refusals
from ds_accum.errors import ConfigError, DSAccumError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["initialize"]

# The place of `config` among the positional parameters of deepspeed.initialize.
_CONFIG_POSITION = 10


def initialize(
    *arguments: Any, token_counter: Callable[..., Any] | None = None, **options: Any
) -> tuple[TokenWeightedEngine, Any, Any, Any]:
    """As `deepspeed.initialize`: same arguments, same four results (engine, optimizer, data loader, scheduler).

    `token_counter(*inputs, **kwargs)` is called like the model and returns how many tokens of the micro-batch count, an
    integer or a tensor with one element; without it they are counted as `ds_accum.counting` says.

    Raises ConfigError for a mistake in the `ds_accum` block and for a set-up that the engine can't weight exactly:
    before DeepSpeed builds anything where the config alone tells, else right after it has.
    """
    try:
        return _initialize(arguments, token_counter, options)
    except DSAccumError as error:
        error.shows_remedy = True  # it is raised into a training script
        raise


def _initialize(
    arguments: tuple[Any, ...], token_counter: Callable[..., Any] | None, options: dict[str, Any]
) -> tuple[TokenWeightedEngine, Any, Any, Any]:
    try:
        import deepspeed
    except ImportError as error:
        raise DSAccumError(
            f"ds_accum.initialize needs torch and deepspeed, and {error.name or error} can't be imported",
            remedy="pip install 'ds-accum[engine]'",
        ) from error
    if os.environ.get("DS_ACCUM_DISABLE", "").lower() not in ("", "0", "false", "no", "off"):
        if os.environ.get("RANK", "0") == "0":
            sys.stderr.write("ds-accum: off, as DS_ACCUM_DISABLE says: this is DeepSpeed's own engine\n")
        stock: tuple[TokenWeightedEngine, Any, Any, Any] = deepspeed.initialize(*arguments, **options)
        return stock

    if token_counter is not None and not callable(token_counter):
        raise ConfigError(
            f"token_counter is a {type(token_counter).__name__}",
            remedy="pass a function that is called like the model and returns how many tokens count",
        )
    from ds_accum.engine.attaching import attach

    given = options.get("config") or options.get("config_params")
    if given is None and len(arguments) > _CONFIG_POSITION:
        given = arguments[_CONFIG_POSITION]
    if given is None:
        given = getattr(options.get("args") or (arguments[0] if arguments else None), "deepspeed_config", None)
    values = _values_of(given)
    if values is not None:
        _settings_of(values)
    engine, *others = deepspeed.initialize(*arguments, **options)
    settings = _settings_of(engine._config._param_dict)
    attach(engine, settings, token_counter)
    return (engine, *others)


def _values_of(config: Any) -> Mapping[str, Any] | None:
    """The config's values where they can be had before DeepSpeed reads them; None where it has to say what is wrong."""
    if isinstance(config, Mapping):
        return config
    try:
        if not isinstance(config, str | os.PathLike):
            return None
        if not Path(config).exists():
            encoded = read_base64(os.fspath(config))
            return encoded.value if encoded is not None and isinstance(encoded.value, Mapping) else None
        document = read_bytes(Path(config).read_bytes(), filename=str(config))
    except (OSError, ValueError):
        return None
    return document.value if isinstance(document.value, Mapping) else None


def _settings_of(values: Mapping[str, Any]) -> DSAccumBlock:
    """The `ds_accum` block. Raises ConfigError for mistakes in it, and for what the engine refuses."""
    settings, mistakes = read_block(values.get(BLOCK, {}))
    if settings is None:
        said = "; ".join(".".join((BLOCK, *map(str, path))) + f" {sentence}" for path, sentence in mistakes)
        raise ConfigError(said, remedy="correct the ds_accum block; ds-accum lint shows where")
    refusals = engine_refusals(DeepSpeedConfig.read(dict(values), version=_installed_version()))
    if refusals:
        refusal = refusals[0]
        setting = ".".join(map(str, refusal.path))
        raise ConfigError(
            f"ds_accum.initialize does not take {refusal.name} ({setting}), because {refusal.reason}",
            remedy=refusal.remedy,
        )
    return settings


def _installed_version() -> tuple[int, int, int]:
    import deepspeed

    return (deepspeed.__version_major__, deepspeed.__version_minor__, deepspeed.__version_patch__)
