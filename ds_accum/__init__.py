"""Lint DeepSpeed configs before a launch, plan a training, train on exact gradients, compare ZeRO stages.

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
    from ds_accum.plan.hardware import read_hardware
    from ds_accum.plan.memory import estimate_memory
    from ds_accum.plan.pipeline import PipelineShape, simulate_pipeline
    from ds_accum.plan.search import plan_batch
    from ds_accum.plan.shapes import read_shape
    from ds_accum.plan.training import TrainingSetup

__all__ = [
    "BatchLedger",
    "Diagnostic",
    "Launch",
    "ParallelLayout",
    "PipelineShape",
    "StepReport",
    "TrainingSetup",
    "__version__",
    "estimate_memory",
    "initialize",
    "lint_file",
    "lint_text",
    "plan_batch",
    "read_hardware",
    "read_shape",
    "simulate_pipeline",
]

__version__ = "0.1.0"

# Public name -> the module it comes from.
_ORIGINS = {
    "BatchLedger": "ds_accum.batch",
    "Diagnostic": "ds_accum.lint",
    "Launch": "ds_accum.config.launch",
    "ParallelLayout": "ds_accum.batch",
    "PipelineShape": "ds_accum.plan.pipeline",
    "StepReport": "ds_accum.engine.report",
    "TrainingSetup": "ds_accum.plan.training",
    "estimate_memory": "ds_accum.plan.memory",
    "initialize": "ds_accum.engine.initialize",
    "lint_file": "ds_accum.lint",
    "lint_text": "ds_accum.lint",
    "plan_batch": "ds_accum.plan.search",
    "read_hardware": "ds_accum.plan.hardware",
    "read_shape": "ds_accum.plan.shapes",
    "simulate_pipeline": "ds_accum.plan.pipeline",
}


def __getattr__(name: str) -> Any:
    if name not in _ORIGINS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_ORIGINS[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
