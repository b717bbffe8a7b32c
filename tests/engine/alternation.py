"""Two engines stepped in turn on the same data in one process: stock DeepSpeed's, and the one under test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from cases import case_of
from training import loss_scale, master_parameters, start, train_window


def compare_bits(arguments: dict[str, Any], rank: int, folder: Path) -> list[dict[str, Any]]:
    """Trains both on the case's windows. For each: how many parameters differ, by how much, and [stock's, ours] numbers."""
    ours_case = case_of(arguments)
    stock_case = replace(ours_case, engine="stock", look_ahead=False)
    runs = [(stock_case, start(stock_case)), (ours_case, start(ours_case))]
    steps = []
    for window in range(len(ours_case.windows)):
        losses = [train_window(engine, case, window, rank).tolist() for case, engine in runs]
        expected, found = (master_parameters(engine, case) for case, engine in runs)
        norms = [engine.get_global_grad_norm() for _, engine in runs]
        steps.append(
            {
                "different": int((expected != found).sum()),
                "furthest": float((expected - found).abs().max()),
                "losses": losses,
                "norms": [None if norm is None else float(norm) for norm in norms],
                "loss_scales": [loss_scale(engine) for _, engine in runs],
            }
        )
    return steps
