"""The engine: DeepSpeed's own, with the gradient of the mean over all counted tokens of the global batch.

Only this package imports torch and deepspeed, and only where they are used: `ds_accum.engine.report` and
`ds_accum.engine.step_log` need neither. `initialize` is the way in; `TokenWeightedEngine` is what it adds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ds_accum.engine.initialize import initialize
    from ds_accum.engine.report import StepReport
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["StepReport", "TokenWeightedEngine", "initialize"]

# Public name -> the module it comes from.
_ORIGINS = {
    "StepReport": "ds_accum.engine.report",
    "TokenWeightedEngine": "ds_accum.engine.token_weighted",
    "initialize": "ds_accum.engine.initialize",
}


def __getattr__(name: str) -> Any:
    if name not in _ORIGINS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_ORIGINS[name]), name)
