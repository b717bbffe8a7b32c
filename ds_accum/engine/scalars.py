"""Numbers of a window as they are kept: float64 scalars on the device."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["scalar"]


def scalar(number: float, device: torch.device) -> Tensor:
    """A number that the host knows, there."""
    return torch.full((), float(number), dtype=torch.float64, device=device)
