"""Refusals that say something about this machine and nothing about the config: a CPU, and what is not installed here.

What a CPU refuses is the product's own table (`ds_accum.config.accelerators`); what is missing is listed here. Together
that is all that the conformance tests excuse.
"""

from __future__ import annotations

from ds_accum.config.accelerators import limit_behind

# Part of DeepSpeed's exception -> what is missing.
NOT_INSTALLED: dict[str, str] = {}


def why_only_here(error: str) -> str | None:
    """Why an exception would not be raised on a GPU machine with everything installed; None if it would."""
    limit = limit_behind(error, accelerator="cpu")
    if limit is not None:
        return f"{'.'.join(limit.path)} needs another accelerator than a CPU: {limit.reason}"
    return next((f"{missing} is not installed" for part, missing in NOT_INSTALLED.items() if part in error), None)
