"""verdict: what a comparison says, in sentences, the most important first.

    all 4 token variants agree with the truth within float32 rounding (largest error 1.8e-06, tolerance 1.0e-05), ...
    all 4 stock variants leave the truth by 43 % of the update: ...

Parity, then variants without a result, counts that are not as the formula says, communication, memory, speed, misuse.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from ds_accum.compare import communication_verdict
from ds_accum.compare.formulas import dtype_of
from ds_accum.compare.measures import (
    Quartiles,
    is_within_tolerance,
    paired_ratio,
    quartiles,
    same_training,
    sign_test,
    variants_by_name,
)
from ds_accum.compare.result import Comparison, VariantResult
from ds_accum.compare.spec import Dtype
from ds_accum.reporting.numbers import bytes_text, error_text, listed, seconds_text, times_text

__all__ = ["Sentence", "Tone", "verdict"]

Tone = Literal["good", "bad", "plain"]

DTYPE_NAMES: dict[Dtype, str] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """One sentence of the verdict, in lower case and without a full stop."""

    topic: Literal["parity", "variants", "communication", "memory", "speed", "misuse"]
    tone: Tone
    text: str


def verdict(comparison: Comparison) -> tuple[Sentence, ...]:
    """All that can be said; at least one sentence."""
    sentences = (
        *_parity(comparison),
        *_without_result(comparison),
        *(
            Sentence(topic="communication", tone="bad", text=text)
            for text in communication_verdict.differences(comparison)
        ),
        *(
            Sentence(topic="communication", tone="plain", text=text)
            for text in communication_verdict.sentences(comparison)
        ),
        *_memory(comparison),
        *_speed(comparison),
        *_misuse(comparison),
    )
    return sentences or (Sentence(topic="variants", tone="bad", text="nothing was measured"),)


# -------------------------------------------------------------------------------------------------------------- parity


def _parity(comparison: Comparison) -> Iterator[Sentence]:
    """Token variants first, then the others, each split into those that agree with the truth and those that don't."""
    variants = variants_by_name(comparison)
    judged = [result for result in comparison.results if is_within_tolerance(result) is not None]
    compared = [result for result in comparison.results if result.parity and variants[result.name].engine != "single"]
    if compared and not judged:
        yield _parity_without_truth(compared)
        return
    token = [result for result in judged if variants[result.name].engine == "token"]
    stock = [result for result in judged if variants[result.name].engine == "stock"]
    others = [result for result in judged if variants[result.name].engine not in ("token", "stock", "single")]
    # What token weighting mends is what was wrong. Stock stage 0 in float16 has a defect of its own in DeepSpeed.
    is_fp16 = any(dtype_of(variants[result.name], comparison.spec) == "fp16" for result in judged)
    explained = bool(token) and all(map(is_within_tolerance, token)) and not is_fp16
    for kind, results in (("token", token), ("stock", stock), ("baseline", others)):
        right = [result for result in results if is_within_tolerance(result)]
        wrong = [result for result in results if not is_within_tolerance(result)]
        if right:
            yield _agreeing(comparison, kind, right, of=len(results))
        if wrong:
            finite = all(math.isfinite(_error(result)) for result in wrong)
            cause = _CAUSE if explained and finite and kind != "token" else ""
            yield _differing(comparison, kind, wrong, of=len(results), cause=cause)
            explained = explained and not cause


def _agreeing(comparison: Comparison, kind: str, right: Sequence[VariantResult], *, of: int) -> Sentence:
    errors = sorted(_error(result) for result in right)
    text = (
        f"{_who(kind, right, of)} {_verb(right, 'agree')} with the truth within {_rounding(comparison, right)}"
        f" (largest error of the update {error_text(errors[-1])}, tolerance {error_text(_tolerance(right))})"
    )
    if len(right) > 1:
        # Each is within its error of the truth, so two are within the sum of theirs of each other.
        text += f", so with each other within {error_text(sum(errors[-2:]))}"
    return Sentence(topic="parity", tone="good", text=text)


def _differing(comparison: Comparison, kind: str, wrong: Sequence[VariantResult], *, of: int, cause: str) -> Sentence:
    errors = [_error(result) for result in wrong]
    how_much = _share(min(errors), max(errors))
    text = f"{_who(kind, wrong, of)} {_verb(wrong, 'leave')} the truth by {how_much}"
    text += f" ({_rounding(comparison, wrong)} explains {error_text(_tolerance(wrong))})"
    differences = [result.parity.first_difference for result in wrong if result.parity]
    known = [difference for difference in differences if difference is not None]
    if known:
        first = min(known, key=lambda difference: difference.step)
        text += f"; first at step {first.step}, most in {first.parameter} ({error_text(first.error)})"
    return Sentence(topic="parity", tone="bad", text=text + cause)


_CAUSE = (
    "; weighted by tokens the same batches agree, so their unevenness is why:"
    " a mean of means of micro-batches is not the mean over tokens"
)


def _parity_without_truth(compared: Sequence[VariantResult]) -> Sentence:
    """The losses are all there is to go by."""
    by_step: dict[int, list[float]] = {}
    for result in compared:
        for step in result.parity.steps if result.parity else ():
            if step.loss is not None:
                by_step.setdefault(step.step, []).append(step.loss)
    text = "the truth was not run, so whether the updates are right is not known"
    spreads = [(max(losses) - min(losses)) / abs(max(losses, key=abs)) for losses in by_step.values() if any(losses)]
    if len(compared) > 1 and spreads:
        text += f"; the losses of {len(compared)} variants differ by up to {error_text(max(spreads))} of the loss"
    return Sentence(topic="parity", tone="plain", text=text)


def _rounding(comparison: Comparison, results: Sequence[VariantResult]) -> str:
    """ "float32 rounding"; of variants in several dtypes just "rounding"."""
    variants = variants_by_name(comparison)
    names = {DTYPE_NAMES[dtype_of(variants[result.name], comparison.spec)] for result in results}
    return f"{names.pop()} rounding" if len(names) == 1 else "rounding"


def _error(result: VariantResult) -> float:
    assert result.parity is not None and result.parity.largest_error is not None
    return result.parity.largest_error


def _tolerance(results: Sequence[VariantResult]) -> float:
    return max(result.parity.tolerance for result in results if result.parity is not None)


def _share(low: float, high: float) -> str:
    """How far from the truth, of the update: "31 % to 44 %", "3.1e-03 to 8.0e-03 of it"."""
    if not math.isfinite(high):
        return "an error that is no number: parameters are no longer finite"
    if low < 0.01:
        shown = [error_text(low), error_text(high)]
        return f"{' to '.join(dict.fromkeys(shown))} of the update"
    shown = [f"{100 * low:.2g}" if low < 0.1 else f"{100 * low:.0f}", f"{100 * high:.0f}" if high >= 0.1 else ""]
    shown[1] = shown[1] or f"{100 * high:.2g}"
    return f"{' to '.join(dict.fromkeys(shown))} % of the update"


def _who(kind: str, results: Sequence[VariantResult], of: int) -> str:
    """ "all 4 token variants", "zero-2 token", "2 of 4 stock variants (zero-0 stock and zero-1 stock)"."""
    names = [result.name for result in results]
    if kind == "baseline" or len(results) == 1:
        return listed(names)
    if len(results) == of:
        return f"all {of} {kind} variants"
    return f"{len(results)} of {of} {kind} variants ({listed(names)})"


def _verb(results: Sequence[VariantResult], verb: str) -> str:
    return f"{verb}s" if len(results) == 1 else verb


# ------------------------------------------------------------------------------------------------------------ variants


def _without_result(comparison: Comparison) -> Iterator[Sentence]:
    for result in comparison.results:
        if result.status != "done":
            word = {"refused": "was refused", "failed": "failed", "unfinished": "was not finished"}[result.status]
            why = _last_line(result.failure)
            yield Sentence(topic="variants", tone="bad", text=f"{result.name} {word}{f': {why}' if why else ''}")


def _last_line(text: str | None) -> str:
    """Where Python says what the error was."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[-1] if lines else ""


# -------------------------------------------------------------------------------------------------------------- memory


def _memory(comparison: Comparison) -> Iterator[Sentence]:
    measured = sorted(
        (result.memory.peak, result.name) for result in comparison.results if result.memory and result.memory.peak > 0
    )
    if len(measured) < 2:
        return
    (least, least_name), (most, most_name) = measured[0], measured[-1]
    yield Sentence(
        topic="memory",
        tone="plain",
        text=f"{least_name} peaks lowest at {bytes_text(least)} a rank and {most_name} highest at {bytes_text(most)},"
        f" {times_text(most / least)} times as much (one process each, measured once)",
    )


# --------------------------------------------------------------------------------------------------------------- speed


_DOUBT = 0.01
"""How likely noise alone may be to look like a difference that is told: with ten told, one report in ten is wrong."""

_FEWEST_STEPS = 8
"""With fewer, even steps that all say the same are likelier than that to be noise."""


def _speed(comparison: Comparison) -> Iterator[Sentence]:
    yield from _token_speed(comparison)
    timed = [
        (spread, result)
        for result in comparison.results
        if result.speed and (spread := quartiles(result.speed.step_seconds)) is not None
    ]
    if len(timed) < 2:
        return
    steps = min(len(result.speed.step_seconds) for _, result in timed if result.speed)
    if steps < _FEWEST_STEPS:
        text = f"{steps} timed {'step is' if steps == 1 else 'steps are'} too few to tell which variant is faster"
        yield Sentence(topic="speed", tone="plain", text=f"{text} (at least {_FEWEST_STEPS} are needed)")
        return
    timed.sort(key=lambda item: (item[0].median, item[1].name))
    (spread, fastest), *others = timed
    alike = [result.name for other, result in others if other.overlaps(spread) or sign_test(result, fastest) > _DOUBT]
    text = f"{fastest.name} has the shortest median step, {seconds_text(spread.median)}"
    if alike:
        text += f", but no difference from {listed(alike)} can be told from noise"
    slowest_spread, slowest = others[-1]
    if slowest.name not in alike and spread.median > 0:
        text += f"; {slowest.name} takes {times_text(slowest_spread.median / spread.median)} times as long"
    yield Sentence(topic="speed", tone="plain", text=f"{text} (this machine, noisy)")


def _token_speed(comparison: Comparison) -> Iterator[Sentence]:
    """Token against stock of the same stage, cut and variation, by pairs of steps."""
    variants = variants_by_name(comparison)
    stock = {
        same_training(variants[result.name]): result
        for result in comparison.results
        if variants[result.name].engine == "stock"
    }
    ratios: list[tuple[str, Quartiles, float]] = []
    for result in comparison.results:
        other = stock.get(same_training(variants[result.name]))
        if variants[result.name].engine == "token" and other is not None:
            ratio = paired_ratio(result, other)
            if ratio is not None:
                ratios.append((result.name, ratio, sign_test(result, other)))
    if not ratios:
        return
    told = [name for name, ratio, doubt in ratios if doubt <= _DOUBT and not ratio.low <= 1 <= ratio.high]
    text = f"step time over stock's, step by step, median and middle half: {_ratios(ratios)}"
    text += f"; told from noise: {listed(told)}" if told else "; no difference can be told from noise"
    yield Sentence(topic="speed", tone="plain", text=text)


def _ratios(ratios: Sequence[tuple[str, Quartiles, float]]) -> str:
    """Each, or of many the extremes."""
    if len(ratios) > 6:
        ordered = sorted(ratios, key=lambda item: item[1].median)
        return f"{_ratio(*ordered[0][:2])} to {_ratio(*ordered[-1][:2])}, over {len(ratios)} variants"
    return ", ".join(_ratio(name, ratio) for name, ratio, _ in ratios)


def _ratio(name: str, ratio: Quartiles) -> str:
    return f"{name} {_two(ratio.median)} ({_two(ratio.low)} to {_two(ratio.high)})"


def _two(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:.3g}"


# -------------------------------------------------------------------------------------------------------------- misuse


def _misuse(comparison: Comparison) -> Iterator[Sentence]:
    """What happens silently, and what is stopped; one sentence for each engine."""
    variants = variants_by_name(comparison)
    tried = [
        (variants[result.name].engine, misuse)
        for result in comparison.results
        if result.status == "done"
        for misuse in result.misuses
    ]
    tried.sort(key=lambda item: item[0])
    for engine, group in groupby(tried, key=lambda item: item[0]):
        misuses = [misuse for _, misuse in group]
        changed = [misuse for misuse in misuses if misuse.outcome == "changes the step"]
        stopped = [misuse for misuse in misuses if misuse.outcome.startswith("stopped")]
        text = (
            f"in the middle of a window, {engine} lets {len(changed)} of {len(misuses)} misuses change the step"
            f" silently and stops {len(stopped)} with an error of its own"
        )
        known = [misuse.step_error for misuse in changed if misuse.step_error is not None]
        if known:
            text += f" (the worst is off by {error_text(max(known))} of the update)"
        yield Sentence(topic="misuse", tone="bad" if changed else "good", text=text)
