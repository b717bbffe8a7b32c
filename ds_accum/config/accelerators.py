"""What DeepSpeed refuses on one accelerator only: the settings that are right on a GPU and can't start elsewhere.

A config is judged for the accelerator it will run on (`--accelerator`, "cuda" unless said otherwise). The conformance
tests run DeepSpeed on a CPU and ask the same table which refusals are the CPU's doing and not the config's. The list is
short on purpose: each entry is a refusal seen from DeepSpeed 0.19.8, with the place in its source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorLimit:
    """One setting that `accelerator` refuses.

    `path` is the setting, `values` those of its values that are refused (empty: every value but a false one). `refusal`
    is a part of DeepSpeed's own exception, `source` where it is raised, `reason` a clause that can follow the setting.
    """

    path: tuple[str, ...]
    refusal: str
    reason: str
    source: str
    values: tuple[Any, ...] = ()
    accelerator: str = "cpu"
    at_load: bool = False


ACCELERATOR_LIMITS: tuple[AcceleratorLimit, ...] = (
    AcceleratorLimit(
        path=("aio", "use_gds"),
        refusal="GDS currently only supported for CUDA accelerator",
        reason="GPUDirect Storage copies between NVMe and GPU memory",
        source="runtime/swap_tensor/aio_config.py",
        at_load=True,
    ),
)


def why_only_here(exception: str, accelerator: str) -> AcceleratorLimit | None:
    """The limit of `accelerator` that an exception of DeepSpeed's comes from, None if it has another cause."""
    return next(
        (limit for limit in ACCELERATOR_LIMITS if limit.accelerator == accelerator and limit.refusal in exception), None
    )
