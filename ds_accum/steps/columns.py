"""Steps: the steps of a run as columns of plain numbers, so that a million of them take 120 MB and not several GB."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field, fields

__all__ = ["NO_COUNT", "Labels", "Steps"]

NO_COUNT = -1
"""Stands in a column of counts where the log says null."""


def _counts() -> array[int]:
    return array("q")


def _numbers() -> array[float]:
    return array("d")


@dataclass(kw_only=True, slots=True)
class Labels:
    """A column of texts, few of which differ: each is kept once."""

    known: dict[str | None, int] = field(default_factory=dict)
    codes: array[int] = field(default_factory=lambda: array("i"))

    def extend(self, texts: list[str | None]) -> None:
        """Adds an entry for each text; None is one as well."""
        for text in {*texts} - {*self.known}:
            self.known[text] = len(self.known)
        self.codes.extend(map(self.known.__getitem__, texts))

    def text_of(self) -> list[str | None]:
        """Code -> text."""
        return list(self.known)


@dataclass(kw_only=True, slots=True)
class Steps:
    """One entry a step in every column, by rising step number. What the log says null for is nan, or NO_COUNT."""

    step: array[int] = field(default_factory=_counts)
    ranks: array[int] = field(default_factory=_counts)
    num_tokens: array[int] = field(default_factory=_counts)
    min_rank_tokens: array[int] = field(default_factory=_counts)
    min_rank: array[int] = field(default_factory=_counts)
    max_rank_tokens: array[int] = field(default_factory=_counts)
    max_rank: array[int] = field(default_factory=_counts)
    loss: array[float] = field(default_factory=_numbers)
    grad_norm: array[float] = field(default_factory=_numbers)
    clip_coefficient: array[float] = field(default_factory=_numbers)
    learning_rate: array[float] = field(default_factory=_numbers)
    loss_scale: array[float] = field(default_factory=_numbers)
    weighting_skew: array[float] = field(default_factory=_numbers)
    seconds: array[float] = field(default_factory=_numbers)
    applied: array[int] = field(default_factory=lambda: array("b"))
    skipped_because: Labels = field(default_factory=Labels)
    wrong_events: Labels = field(default_factory=Labels)
    """What is wrong with the events of a step; None where they are right."""
    misuses: Labels = field(default_factory=Labels)
    """Name -> how often, as JSON; None where there was none."""

    def __len__(self) -> int:
        return len(self.step)

    def forget_from(self, step: int) -> int:
        """Drops the steps with this number and above; how many there were."""
        kept = bisect_left(self.step, step)
        dropped = len(self) - kept
        if dropped:
            for column in fields(self):
                values = getattr(self, column.name)
                del (values.codes if isinstance(values, Labels) else values)[kept:]
        return dropped
