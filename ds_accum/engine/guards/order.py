"""The order of a step, as evidence: gradients reduced, then measured once, then applied once, then set to zero.

    ZeRO 0 and 1, BF16_Optimizer      b b b b r n u z       b backward   r reduction   n norm   u update   z zero
    ZeRO-2 and 3                      b r b r b r b r n u z
    the same, reduced at the boundary b b b b r n u z

There are as many backwards as the window has micro-batches. The norm is missing where nobody takes one: a plain torch
optimizer with clipping off.
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


def check_order(engine: TokenWeightedEngine) -> None:
    """After an applied step, whose window is still there."""
    state = engine._accumulation
    happened = "".join(event[0] for event in state.events.events)
    norm = "n" if private.takes_norm(engine, always=state.settings.report_norm == "always") else ""
    number = state.window.micro_batches
    patterns, words = [f"b{{{number}}}r"], [f"{number} x b, r"]
    if engine.zero_optimization_partition_gradients():
        # After each backward, unless it is held back.
        patterns.append(f"(?:br){{{number}}}")
        words.insert(0, f"{number} x (b, r)")
    # ZeRO-3 drops the parameters' gradients, copied by then, before it updates as well as after.
    if re.fullmatch(f"(?:{'|'.join(patterns)}){norm}z?uz+", happened):
        return
    report_misuse(
        engine,
        StepOrderError(
            f"step {engine.global_steps} went {' '.join(happened)}, but a step of {number} micro-batches goes "
            f"{' or '.join(words)}, {', '.join(f'{norm}uz')} (b backward, r reduction, n norm, u update, z gradients "
            "set to zero)",
            remedy="look for what calls DeepSpeed's parts by itself: a second norm or update, a reduction by hand, a "
            "backward that was left out",
        ),
    )
