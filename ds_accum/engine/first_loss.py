"""The first loss, compared with its own logits: whether what is counted is what the loss is the mean of.

    declared     mean over labels without the first of each sequence (shift)      3.2104
    loss                                                                          3.3517
    other        mean over labels as they are                                     3.3517   -> CountError

Wrong counts are silent: training goes on with weights that are a little off. Where the model returns its logits beside
the loss, the four losses that settings can mean (shift or not, mean or sum) are computed once, from a few megabytes at
a time; if the loss is one of them but not the declared one, the settings are wrong. In an untrained model all means are
near the logarithm of the vocabulary's size: a loss in float32 is compared to its own rounding. A loss that is none of
them (label smoothing, an auxiliary term) proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ds_accum.errors import CountError

__all__ = ["check_first_loss", "logits_in"]

_CHUNK_BYTES = 64 * 1024 * 1024
_SAME, _OTHER = {True: 2e-5, False: 2e-3}, {True: 1e-4, False: 1e-2}
"""Relative differences up to which two losses are the same, and from which they are not: of one in float32, or less."""


def logits_in(output: Any) -> Tensor | None:
    """logits [B, T, V] in a model's output, beside its loss; None where there are none."""
    if isinstance(output, Mapping):
        logits = output.get("logits")
    elif isinstance(output, tuple | list):
        logits = output[1] if len(output) > 1 else None
    else:
        logits = getattr(output, "logits", None)
    return logits if isinstance(logits, Tensor) and logits.dim() == 3 and logits.is_floating_point() else None


def check_first_loss(
    loss: Tensor, logits: Tensor, labels: Tensor, *, shift: bool, reduction: str, ignore_index: int
) -> bool:
    """Raises CountError if the loss is what other settings of `shift` and `loss_reduction` describe, and not these.

    `logits` are [B, T, V], `labels` [B, T]; `reduction` is "mean" or "sum". Returns whether any token counts.
    """
    if labels.shape != logits.shape[:2] or labels.shape[1] < 2:
        return True
    given, is_precise = float(loss.detach()), loss.dtype not in (torch.float16, torch.bfloat16)
    candidates: dict[tuple[bool, str], float] = {}
    for shifted in (True, False):
        total, counted = _sum_and_count(logits, labels, shift=shifted, ignore_index=ignore_index)
        if not counted:
            return False
        candidates[shifted, "sum"], candidates[shifted, "mean"] = total, total / counted
    declared = candidates[shift, reduction]
    if _difference(given, declared) < _OTHER[is_precise]:
        return True
    matching = [settings for settings, value in candidates.items() if _difference(given, value) < _SAME[is_precise]]
    if len(matching) != 1:
        return True
    (actual_shift, actual_reduction) = matching[0]
    raise CountError(
        f"the first loss, {given:.4f}, is the {_description(actual_shift, actual_reduction)}, but the settings say "
        f"that it is the {_description(shift, reduction)}, which would be {declared:.4f}",
        remedy=f'set "loss_reduction": "{actual_reduction}" and "counting": {{"shift": {str(actual_shift).lower()}}} '
        "in the ds_accum block",
    )


def _sum_and_count(logits: Tensor, labels: Tensor, *, shift: bool, ignore_index: int) -> tuple[float, int]:
    """The sum of token losses, and how many they are."""
    if shift:
        logits, labels = logits[:, :-1], labels[:, 1:]
    positions = max(1, _CHUNK_BYTES // (4 * logits.shape[-1]))
    total = 0.0
    with torch.no_grad():
        for row, row_labels in zip(logits.detach(), labels, strict=True):
            for chunk, chunk_labels in zip(row.split(positions), row_labels.split(positions), strict=True):
                total += float(
                    nn.functional.cross_entropy(
                        chunk.float(), chunk_labels.to(chunk.device), ignore_index=ignore_index, reduction="sum"
                    )
                )
    return total, int((labels != ignore_index).sum())


def _difference(a: float, b: float) -> float:
    return abs(a - b) / max(abs(a), abs(b), 1e-12)


def _description(shift: bool, reduction: str) -> str:
    return f"{reduction} over the labels " + ("without the first of each sequence" if shift else "as they are")
