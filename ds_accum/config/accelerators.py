"""What DeepSpeed refuses on one accelerator only: settings that are right on a GPU and can't start elsewhere.

A config is judged for the accelerator it will run on (`--accelerator`, "cuda" unless said otherwise). The conformance
tests run DeepSpeed on a CPU and ask the same table which refusals are the CPU's doing and not the config's. The list is
short on purpose: each entry is a refusal seen from DeepSpeed 0.19.8, with the place in its source.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorLimit:
    """One setting that `accelerator` refuses.

    `path` is the setting, refused where it holds one of `values`. `refusal` is a part of DeepSpeed's own exception,
    `source` where it is raised; `reason` says what the setting needs. `at_load` says that the config does not even load.
    """

    accelerator: str
    path: tuple[str, ...]
    values: tuple[str | bool, ...]
    refusal: str
    reason: str
    source: str
    at_load: bool = False


ACCELERATOR_LIMITS: tuple[AcceleratorLimit, ...] = (
    AcceleratorLimit(
        accelerator="cpu",
        path=("aio", "use_gds"),
        values=(True,),
        refusal="GDS currently only supported for CUDA accelerator",
        reason="GPUDirect Storage copies between NVMe and the memory of an NVIDIA GPU",
        source="runtime/swap_tensor/aio_config.py, get_aio_config",
        at_load=True,
    ),
)


def limit_behind(exception: str, *, accelerator: str) -> AcceleratorLimit | None:
    """The limit of an accelerator that an exception of DeepSpeed's comes from, None if it has another cause."""
    return next(
        (limit for limit in ACCELERATOR_LIMITS if limit.accelerator == accelerator and limit.refusal in exception), None
    )
