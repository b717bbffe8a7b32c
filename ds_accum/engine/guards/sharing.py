"""Another engine's backward through this engine's model: what it leaves here belongs to no window.

The loss that a generator is trained with goes through the discriminator. Frozen, that lets the gradient pass;
else stock DeepSpeed adds it to the discriminator's next step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ds_accum.engine.guards.reporting import report_misuse, where_in_window
from ds_accum.errors import MisuseError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["TrainedByAnotherEngineError", "check_parameters_are_frozen"]


class TrainedByAnotherEngineError(MisuseError):
    """Another engine's backward leaves gradients in this engine's parameters."""


def check_parameters_are_frozen(engine: TokenWeightedEngine) -> bool:
    """In another engine's backward: returns whether this engine's parameters take no gradient of it, as they must."""
    if not any(parameter.requires_grad for parameter in engine._accumulation.parameters):
        return True
    report_misuse(
        engine,
        TrainedByAnotherEngineError(
            f"the backward of another engine passes through this one {where_in_window(engine)}, and would leave its "
            "gradients in this engine's parameters, with no token to weigh them by",
            remedy="freeze them around that forward and backward: engine.module.requires_grad_(False), then True",
        ),
    )
    return False
