"""Calls that DeepSpeed has no way to answer rightly in some set-ups, refused before it fails or reduces too early."""

from __future__ import annotations

from typing import Any

from ds_accum.engine import deepspeed_private as private
from ds_accum.errors import AccumulationError

__all__ = ["require_no_sync_works", "require_torch_style_backward", "require_window_can_be_finished"]


def require_torch_style_backward(engine: Any) -> None:
    """Raises AccumulationError where DeepSpeed knows only `engine.backward`."""
    if not engine._support_torch_style_backward:
        raise AccumulationError(
            "ZeRO 0 propagates losses back through engine.backward alone",
            remedy="engine.backward(loss, num_tokens=n)",
        )


def require_no_sync_works(engine: Any) -> None:
    """Raises AccumulationError where a reduction would start inside `no_sync` and fail at the second backward."""
    if (
        private.kind_of(engine.optimizer) == "DeepSpeedZeroOptimizer"
        and engine.zero_optimization_stage() == 1
        and engine.optimizer.overlap_comm
        and engine.gradient_accumulation_steps() == 1
    ):
        raise AccumulationError(
            "no_sync with ZeRO-1, overlap_comm and 1 accumulation step reduces gradients in each backward all the same",
            remedy="turn overlap_comm off, or set gradient_accumulation_steps to the micro-batches of a step",
        )


def require_window_can_be_finished(engine: Any) -> None:
    """Raises AccumulationError where gradients leave for the CPU only in a backward known to be the last."""
    optimizer = engine.optimizer
    offloads = getattr(optimizer, "cpu_offload", False) or getattr(optimizer, "offload_optimizer", False)
    if (
        offloads
        and engine.zero_optimization_partition_gradients()
        and not hasattr(optimizer, "finalize_gradient_accumulation_boundary")
    ):
        raise AccumulationError(
            "ZeRO-2 and 3 with offload_optimizer can't apply an incomplete window in this DeepSpeed release",
            remedy="fill the window with micro-batches without a counted token, or install DeepSpeed 0.19.4 or newer",
        )
