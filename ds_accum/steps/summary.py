"""Steps -> Summary: what was skipped and why, how the loss went, what clipping and weighting did, who was waited for.

Every number is about the steps that are in the log. A part is None where no step says anything about it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ds_accum.steps.columns import NO_COUNT, Steps
from ds_accum.steps.numbers import finite, median, quantile
from ds_accum.steps.ranks import RankTokens, rank_tokens

__all__ = [
    "Clipping",
    "GradNorm",
    "Loss",
    "Misuse",
    "Range",
    "Skips",
    "Summary",
    "Time",
    "Tokens",
    "Weighting",
    "WrongEvents",
    "summarize",
]

# How many steps of a kind are named.
_NAMED = 5

# A mean of means that weighs no token more than 1 % wrongly is as good as the true mean, 10 % is not.
_HARMLESS_SKEW = 1.01
_HARMFUL_SKEW = 1.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Skips:
    """Steps that updated nothing for one reason."""

    reason: str
    count: int
    first_steps: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tokens:
    """Counted tokens, over all ranks: in total and a step."""

    total: int
    min: int
    median: float
    max: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """Mean loss over the counted tokens of a step; `recent_mean` over those of the last tenth of the steps together, or
    over the steps where tokens are not counted."""

    first: float
    first_step: int
    last: float
    last_step: int
    recent_mean: float
    recent_steps: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GradNorm:
    """Norm of the gradient before clipping, where it is finite; `infinite` counts the overflows."""

    median: float | None
    max: float | None
    max_step: int | None
    infinite: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Clipping:
    """Of the applied steps: how many gradients were made shorter, and by what factor (None where none was)."""

    applied: int
    clipped: int
    rate: float
    median_coefficient: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Weighting:
    """By how many times a mean of means would weigh some token of a step too much; 1 is right. `matters`: no token is
    off by 1 % ("no"), some step by less than 10 % or the middle one by less than 1 % ("little"), or more ("yes")."""

    median: float
    max: float
    max_step: int
    matters: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """A setting over the run; `changes` counts the steps that had another value than the step before."""

    first: float
    last: float
    min: float
    max: float
    changes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Time:
    """Seconds a step, in the middle and not more than in 95 of 100 steps; tokens a second over all of them."""

    median: float
    p95: float
    total: float
    tokens_per_second: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class WrongEvents:
    """Steps in which not exactly what makes a step happened. `examples`: the first of each kind, and what was wrong."""

    count: int
    examples: tuple[tuple[int, str], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Misuse:
    """One way in which the training loop broke the accumulation window, where `on_misuse` let it pass."""

    name: str
    times: int
    steps: int
    first_steps: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """What a step log says."""

    steps: int
    first_step: int
    last_step: int
    applied: int
    skipped: int
    skips: tuple[Skips, ...]
    tokens: Tokens | None
    loss: Loss | None
    grad_norm: GradNorm | None
    clipping: Clipping | None
    weighting: Weighting | None
    rank_tokens: RankTokens | None
    loss_scale: Range | None
    learning_rate: Range | None
    time: Time | None
    wrong_events: WrongEvents
    misuses: tuple[Misuse, ...]


def summarize(steps: Steps) -> Summary:
    """The summary of at least one step."""
    applied = sum(steps.applied)
    return Summary(
        steps=len(steps),
        first_step=steps.step[0],
        last_step=steps.step[-1],
        applied=applied,
        skipped=len(steps) - applied,
        skips=_skips(steps),
        tokens=_tokens(steps),
        loss=_loss(steps),
        grad_norm=_grad_norm(steps),
        clipping=_clipping(steps),
        weighting=_weighting(steps),
        rank_tokens=rank_tokens(steps),
        loss_scale=_range(steps.loss_scale),
        learning_rate=_range(steps.learning_rate),
        time=_time(steps),
        wrong_events=_wrong_events(steps),
        misuses=_misuses(steps),
    )


def _skips(steps: Steps) -> tuple[Skips, ...]:
    """The most frequent reason first."""
    of_code: dict[int, list[int]] = {}
    for index, applied in enumerate(steps.applied):
        if not applied:
            of_code.setdefault(steps.skipped_because.codes[index], []).append(steps.step[index])
    texts = steps.skipped_because.text_of()
    found = [
        Skips(reason=texts[code] or "no reason given", count=len(numbers), first_steps=tuple(numbers[:_NAMED]))
        for code, numbers in of_code.items()
    ]
    return tuple(sorted(found, key=lambda skips: (-skips.count, skips.first_steps)))


def _tokens(steps: Steps) -> Tokens | None:
    ordered = sorted(tokens for tokens in steps.num_tokens if tokens != NO_COUNT)
    if not ordered:
        return None
    return Tokens(total=sum(ordered), min=ordered[0], median=quantile(ordered, 0.5), max=ordered[-1])


def _loss(steps: Steps) -> Loss | None:
    known = [index for index, loss in enumerate(steps.loss) if math.isfinite(loss)]
    if not known:
        return None
    recent = known[-max(1, len(known) // 10) :]
    weights = [max(steps.num_tokens[index], 0) for index in recent]
    if not sum(weights):
        weights = [1] * len(recent)
    total = math.fsum(steps.loss[index] * weight for index, weight in zip(recent, weights, strict=True))
    return Loss(
        first=steps.loss[known[0]],
        first_step=steps.step[known[0]],
        last=steps.loss[known[-1]],
        last_step=steps.step[known[-1]],
        # A mean over steps would weigh tokens unequally: what this log is there to prevent.
        recent_mean=total / sum(weights),
        recent_steps=len(recent),
    )


def _grad_norm(steps: Steps) -> GradNorm | None:
    known = finite(steps.grad_norm)
    infinite = sum(map(math.isinf, steps.grad_norm))
    if not known:
        return GradNorm(median=None, max=None, max_step=None, infinite=infinite) if infinite else None
    largest = max(known)
    return GradNorm(
        median=median(known),
        max=largest,
        max_step=steps.step[steps.grad_norm.index(largest)],
        infinite=infinite,
    )


def _clipping(steps: Steps) -> Clipping | None:
    coefficients = [
        coefficient
        for coefficient, applied in zip(steps.clip_coefficient, steps.applied, strict=True)
        if applied and coefficient == coefficient
    ]
    if not coefficients:
        return None
    clipped = [coefficient for coefficient in coefficients if coefficient < 1]
    return Clipping(
        applied=len(coefficients),
        clipped=len(clipped),
        rate=len(clipped) / len(coefficients),
        median_coefficient=median(clipped) if clipped else None,
    )


def _weighting(steps: Steps) -> Weighting | None:
    known = sorted(finite(steps.weighting_skew))
    if not known:
        return None
    middle, largest = quantile(known, 0.5), known[-1]
    if largest < _HARMLESS_SKEW:
        matters = "no"
    else:
        matters = "yes" if middle >= _HARMLESS_SKEW and largest >= _HARMFUL_SKEW else "little"
    return Weighting(
        median=middle, max=largest, max_step=steps.step[steps.weighting_skew.index(largest)], matters=matters
    )


def _range(column: Sequence[float]) -> Range | None:
    known = finite(column)
    if not known:
        return None
    changes = sum(before != after for before, after in pairwise(known))
    return Range(first=known[0], last=known[-1], min=min(known), max=max(known), changes=changes)


def _time(steps: Steps) -> Time | None:
    known = sorted(finite(steps.seconds))
    if not known:
        return None
    total = math.fsum(known)
    tokens = sum(
        tokens
        for tokens, seconds in zip(steps.num_tokens, steps.seconds, strict=True)
        if tokens != NO_COUNT and math.isfinite(seconds)
    )
    return Time(
        median=quantile(known, 0.5),
        p95=quantile(known, 0.95),
        total=total,
        tokens_per_second=tokens / total if total > 0 and tokens else None,
    )


def _wrong_events(steps: Steps) -> WrongEvents:
    texts = steps.wrong_events.text_of()
    right = steps.wrong_events.known.get(None, NO_COUNT)
    count, first_of = 0, dict[int, int]()
    for index, code in enumerate(steps.wrong_events.codes):
        if code != right:
            count += 1
            first_of.setdefault(code, steps.step[index])
    return WrongEvents(count=count, examples=tuple(_examples(first_of, texts)))


def _examples(first_of: dict[int, int], texts: Sequence[str | None]) -> Iterable[tuple[int, str]]:
    for code, step in list(first_of.items())[:_NAMED]:
        text = texts[code]
        assert text is not None
        yield step, text


def _misuses(steps: Steps) -> tuple[Misuse, ...]:
    """By name."""
    texts = [json.loads(text) if text else {} for text in steps.misuses.text_of()]
    found: dict[str, list[tuple[int, int]]] = {}
    for step, code in zip(steps.step, steps.misuses.codes, strict=True):
        for name, times in texts[code].items():
            found.setdefault(name, []).append((step, times))
    return tuple(
        Misuse(
            name=name,
            times=sum(times for _, times in its),
            steps=len(its),
            first_steps=tuple(step for step, _ in its[:_NAMED]),
        )
        for name, its in sorted(found.items())
    )
