"""Gradients that change between two micro-batches, by whatever hand.

torch counts the in-place writes to each tensor: the counters after one backward are compared with those before the
next. That is one comparison a parameter and no pass over gradients. `p.grad.data` has a counter of its own, which is
why a thorough check also compares one element of each gradient. ZeRO-2 and 3 leave no gradient on the parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ds_accum.engine.guards.reporting import report_misuse, where_in_window
from ds_accum.errors import MisuseError

if TYPE_CHECKING:
    from ds_accum.engine.token_weighted import TokenWeightedEngine

__all__ = ["Fingerprint", "GradientEditedError", "check_gradients", "fingerprint", "renew_fingerprint"]


class GradientEditedError(MisuseError):
    """A gradient was written to between two micro-batches."""


Fingerprint = tuple[list[tuple[int, int] | None], Tensor | None]
"""Identity and version of each parameter's gradient, and under a thorough check an element of each."""


def fingerprint(engine: TokenWeightedEngine) -> Fingerprint | None:
    """What the gradients look like now; None where the parameters hold none."""
    state = engine._accumulation
    if state.keeps_no_gradients and not _holds_back(engine):
        return None
    marks = [
        None if (gradient := parameter.grad) is None else (id(gradient), gradient._version)
        for parameter in state.parameters
    ]
    thorough = state.settings.check == "thorough"
    return marks, _elements([parameter.grad for parameter in state.parameters]) if thorough else None


def _holds_back(engine: TokenWeightedEngine) -> bool:
    """Whether gradients stay on the parameters until a reduction at the boundary."""
    return engine._accumulation.coalescing is not None or bool(engine.inside_no_sync_ctxt)


def renew_fingerprint(engine: TokenWeightedEngine) -> None:
    """After an edit that is known about."""
    state = engine._accumulation
    if state.fingerprint is not None:
        state.fingerprint = fingerprint(engine)


def check_gradients(engine: TokenWeightedEngine, when: str) -> None:
    """Compares with the fingerprint that the last backward left."""
    state = engine._accumulation
    if state.fingerprint is None:
        return
    before, after = state.fingerprint, fingerprint(engine)
    state.fingerprint = None
    changed = _first_changed(before, after) if after is not None else None
    if changed is None:
        return
    name = state.parameter_names[changed]
    report_misuse(
        engine,
        GradientEditedError(
            f'the gradient of "{name}" was written to {where_in_window(engine)}, before {when}: what has been '
            "accumulated is no longer the sum of the micro-batches",
            remedy="change gradients in no place, or the loss before its backward",
        ),
    )


def _first_changed(before: Fingerprint, after: Fingerprint) -> int | None:
    """The place of the first gradient that is not what it was."""
    (marks, elements), (new_marks, new_elements) = before, after
    if marks != new_marks:
        return next(place for place, (old, new) in enumerate(zip(marks, new_marks, strict=True)) if old != new)
    if elements is not None and new_elements is not None and not torch.equal(elements, new_elements):
        return int((elements != new_elements).nonzero()[0])
    return None


def _elements(gradients: list[Tensor | None]) -> Tensor:
    """The middle element of each gradient, 0 where there is none or where it is not a number; one transfer a device."""
    places: dict[torch.device, list[int]] = {}
    for place, gradient in enumerate(gradients):
        if gradient is not None and gradient.numel():
            places.setdefault(gradient.device, []).append(place)
    elements = torch.zeros(len(gradients), dtype=torch.float64)
    for held in places.values():
        found = [_middle(gradient) for gradient in map(gradients.__getitem__, held) if gradient is not None]
        elements[held] = torch.stack(found).cpu()
    return elements.nan_to_num()


def _middle(gradient: Tensor) -> Tensor:
    return gradient.detach().reshape(-1)[gradient.numel() // 2].to(torch.float64)
