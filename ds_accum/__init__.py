"""Lint DeepSpeed batch settings before a launch, train on exact token-weighted gradients, compare ZeRO stages.

    from ds_accum import Launch, lint_file

    for diagnostic in lint_file("ds_config.json", launches=[Launch(world_size=64)]):
        print(diagnostic.code, diagnostic.start.line, diagnostic.message)

Every name is imported when it is first asked for: importing ds_accum costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ds_accum.batch import BatchLedger, ParallelLayout
    from ds_accum.config.launch import Launch
    from ds_accum.engine.initialize import initialize
    from ds_accum.engine.report import StepReport
    from ds_accum.lint import Diagnostic, lint_file, lint_text

__all__ = [
    "BatchLedger",
    "Diagnostic",
    "Launch",
    "ParallelLayout",
    "StepReport",
    "__version__",
    "initialize",
    "lint_file",
    "lint_text",
]

__version__ = "0.1.0"

# Public name -> the module it comes from.
_ORIGINS = {
    "BatchLedger": "ds_accum.batch",
    "Diagnostic": "ds_accum.lint",
    "Launch": "ds_accum.config.launch",
    "ParallelLayout": "ds_accum.batch",
    "StepReport": "ds_accum.engine.report",
    "initialize": "ds_accum.engine.initialize",
    "lint_file": "ds_accum.lint",
    "lint_text": "ds_accum.lint",
}


def __getattr__(name: str) -> Any:
    if name not in _ORIGINS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_ORIGINS[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
