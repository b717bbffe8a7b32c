"""A silent mistake, shown by training with it and without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deepspeed_start import ClientOptimizer

Seen = Mapping[str, Any]
"""What rank 0 saw: "steps", for each optimizer step what `measure.py` says of it, and what was looked at, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """`shows` is true of what is seen with the bad config, and false with the good one.

    The configs are the rule's own first bad and first good example unless they are given; `ranks`, where it is not
    given, is their world size, or 1. An example is no good for this if its optimizer hides the gradient: with SGD and a
    learning rate of 1 the update is minus the gradient. `look` are expressions over `engine`, by name.
    """

    code: str
    says: str
    shows: Callable[[Seen], bool]
    bad: str | None = None
    good: str | None = None
    ranks: int | None = None
    pipeline_stages: int = 0
    client_optimizer: ClientOptimizer | None = None
    client_scheduler: bool = False
    steps: int = 1
    look: Mapping[str, str] = field(default_factory=dict)
