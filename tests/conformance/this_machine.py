"""Refusals that say something about this machine and nothing about the config: a CPU, and what is not installed here.

What a CPU refuses is the product's own table (`ds_accum.config.accelerators`); what is missing is listed here. Together
that is all that the conformance tests excuse.
"""

from __future__ import annotations

from ds_accum.config.accelerators import limits_behind

# Part of DeepSpeed's exception -> what is missing.
NOT_INSTALLED: dict[str, str] = {
    "No module named 'tensorboard'": "the package tensorboard",
    "No module named 'wandb'": "the package wandb",
    "No module named 'comet_ml'": "the package comet_ml",
    # DeepSpeed logs that mup has to be installed, and then uses the name that it could not import.
    "cannot access local variable 'Mu": "the package mup",
    "Please install DataStates": "the package datastates-llm",
    "Unable to JIT load the async_io op": "the library libaio with its headers",
    "pin_memory has to be compiled": "the operator behind pinned memory for NVMe",
}


def why_only_here(error: str, *, accelerator: str = "cuda") -> str | None:
    """Why an exception would not be raised on such a machine with everything installed; None if it would.

    What is judged for a CPU has no excuse in this one's being a CPU.
    """
    if accelerator != "cpu":
        for limit in limits_behind(error, accelerator="cpu"):
            return f"{'.'.join(limit.settings[0].path)} on a CPU: {limit.reason}"
    return next((f"{missing} is not installed" for part, missing in NOT_INSTALLED.items() if part in error), None)
