"""How far a run may be from the truth: absolute in fp32, by stock DeepSpeed's own rounding in bf16 and fp16."""

from __future__ import annotations

from collections.abc import Mapping

import matrix
from cases import Case
from launch import Answer

FP32_UNCLIPPED, FP32_CLIPPED = 1e-5, 1e-4
"""Largest error of an update in fp32. The rounding of parameters is the same, whether the update is clipped or not."""
TIMES_STOCK = 2.0
"""How many times the error of stock DeepSpeed on equal counts a bf16 or fp16 run may have."""
HALF_PRECISION = 1e-2
"""What no bf16 or fp16 run may pass, whatever stock DeepSpeed does."""
MUON = 2e-2
"""Muon's iteration runs in fp16, whatever the rest does."""


def limit_of(case: Case, answers: Mapping[str, Answer]) -> float:
    """The largest error that an update of this case may have; its yardstick is among the answers."""
    if case.optimizer == "muon":
        return MUON
    if case.dtype == "fp32":
        return FP32_CLIPPED if case.clipping == matrix.ACTIVE else FP32_UNCLIPPED
    yardstick = matrix.yardstick_of(case)
    assert yardstick is not None
    stock = answers[yardstick.name].value()["error"]["token"]
    return min(TIMES_STOCK * max(stock), HALF_PRECISION)
