"""The order of a step, as evidence: gradients reduced, then measured once, then applied once, then set to zero.

    ZeRO 0 and 1, BF16_Optimizer      b b b b r n u z       b backward   r reduction   n norm   u update   z zero
    ZeRO-2 and 3                      b r b r b r b r n u z
    the same, reduced at the boundary b b b b r n u z

The norm is missing where nobody takes one: a plain torch optimizer with clipping off.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ds_accum.engine import deepspeed_private as private
from ds_accum.engine.guards.reporting import report_misuse
from ds_accum.errors import MisuseError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["StepOrderError", "check_order"]


class StepOrderError(MisuseError):
    """The events of an applied step are not those of a right step."""


_EACH = r"(br)+"
_ONCE = r"b+r"


def check_order(engine: TokenWeightedEngine) -> None:
    """After an applied step."""
    state = engine._accumulation
    happened = "".join(event[0] for event in state.events.events)
    norm = "n" if takes_norm(engine) else ""
    reductions = f"{_EACH}|{_ONCE}" if engine.zero_optimization_partition_gradients() else _ONCE
    # ZeRO-3 drops the parameters' gradients, copied by then, before it updates as well as after.
    if re.fullmatch(f"({reductions}){norm}z?uz+", happened):
        return
    expected = (_EACH if engine.zero_optimization_partition_gradients() else _ONCE) + norm + "uz"
    report_misuse(
        engine,
        StepOrderError(
            f"step {engine.global_steps} went {' '.join(happened)}, but a step goes {expected} "
            "(b backward, r reduction, n norm, u update, z gradients set to zero)",
            remedy="look for what calls DeepSpeed's parts by itself: a second norm or update, a reduction by hand",
        ),
    )


def takes_norm(engine: TokenWeightedEngine) -> bool:
    """Whether the norm of the complete gradient is taken in each step."""
    if private.kind_of(engine.optimizer) == "torch":
        return bool(engine.gradient_clipping() > 0) or engine._accumulation.settings.report_norm == "always"
    return bool(getattr(engine.optimizer, "compute_grad_norm", True))
