"""Summary -> (heading, sentences, whether it deserves attention): what the terminal and the page both say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ds_accum.steps.numbers import in_full, percent, short
from ds_accum.steps.ranks import RankTokens
from ds_accum.steps.summary import Clipping, GradNorm, Loss, Range, Summary, Tokens, Weighting, WrongEvents

__all__ = ["Said", "said"]


class Said(NamedTuple):
    """One part of a summary."""

    heading: str
    text: str
    is_odd: bool = False


def said(summary: Summary) -> Iterator[Said]:
    """The parts of a summary in the order in which they are read."""
    yield Said("steps", _steps(summary))
    for skips in summary.skips:
        yield Said("", f"{skips.reason}: {in_full(skips.count)} ({_named(skips.first_steps, skips.count)})", True)
    yield Said("tokens", _tokens(summary.tokens))
    yield Said("loss", _loss(summary.loss))
    yield _grad_norm(summary.grad_norm)
    yield Said("clipping", _clipping(summary.clipping))
    yield _weighting(summary.weighting)
    yield Said("most tokens", _ranks(summary.rank_tokens))
    yield Said("loss scale", _loss_scale(summary.loss_scale))
    yield Said("learning rate", _learning_rate(summary.learning_rate))
    if summary.time is not None:
        time = summary.time
        rate = "" if time.tokens_per_second is None else f"; {short(time.tokens_per_second)} tokens a second"
        yield Said("time", f"a step: median {short(time.median)} s, 95 % within {short(time.p95)} s{rate}")
    yield _events(summary.wrong_events)
    for misuse in summary.misuses:
        # The name is the log's: it may hold whatever a terminal acts on.
        name = misuse.name if misuse.name.isprintable() else ascii(misuse.name)
        steps = _named(misuse.first_steps, misuse.steps)
        yield Said(
            "misuse", f"{name}: {_count(misuse.times, 'time')} in {_count(misuse.steps, 'step')} ({steps})", True
        )


def _steps(summary: Summary) -> str:
    first, last = summary.first_step, summary.last_step
    span = f"step {first}" if first == last else f"{first} to {last}"
    share = f" ({percent(summary.skipped / summary.steps)})" if summary.skipped else ""
    applied, skipped = in_full(summary.applied), in_full(summary.skipped)
    return f"{in_full(summary.steps)} ({span}), {applied} applied, {skipped} skipped{share}"


def _tokens(tokens: Tokens | None) -> str:
    if tokens is None:
        return "not counted"
    total, least, middle, most = map(in_full, (tokens.total, tokens.min, tokens.median, tokens.max))
    return f"{total}; a step: median {middle}, min {least}, max {most}"


def _loss(loss: Loss | None) -> str:
    if loss is None:
        return "no step has a finite one"
    first, last = f"{short(loss.first)} (step {loss.first_step})", f"{short(loss.last)} (step {loss.last_step})"
    if loss.first_step == loss.last_step:
        return first
    if loss.recent_steps == 1:
        return f"{first} -> {last}"
    recent = f"the last {in_full(loss.recent_steps)} steps"
    return f"{first} -> {last}; {short(loss.recent_mean)} over {recent}, as the mean over their tokens"


def _grad_norm(norm: GradNorm | None) -> Said:
    if norm is None:
        return Said("gradient norm", "not taken in any step")
    infinite = f"infinite in {_count(norm.infinite, 'step')}" if norm.infinite else ""
    if norm.max is None or norm.median is None:
        return Said("gradient norm", infinite, True)
    text = f"median {short(norm.median)}, max {short(norm.max)} (step {norm.max_step})"
    return Said("gradient norm", f"{text}, {infinite}" if infinite else text)


def _clipping(clipping: Clipping | None) -> str:
    if clipping is None:
        return "off, or no step was applied"
    if clipping.median_coefficient is None:
        return f"none of {_count(clipping.applied, 'applied step')} was clipped"
    return (
        f"{percent(clipping.rate)} of the applied steps ({in_full(clipping.clipped)} of {in_full(clipping.applied)}),"
        f" median coefficient of those {short(clipping.median_coefficient)}"
    )


def _weighting(weighting: Weighting | None) -> Said:
    if weighting is None:
        return Said("weighting", "no step says what a mean of means would have done")
    if weighting.max == 1:
        return Said("weighting", "every micro-batch of a step has equally many tokens: a mean of means is right here")
    would = (
        f"a mean of means would have given a token up to {short(weighting.max)} times its weight"
        f" (step {weighting.max_step}), {short(weighting.median)} times in the median step: "
    )
    matters = {
        "no": "too little to matter for this data",
        "little": "it matters little for this data",
        "yes": "for this data it would have been another training",
    }
    return Said("weighting", would + matters[weighting.matters], weighting.matters == "yes")


def _ranks(tokens: RankTokens | None) -> str:
    if tokens is None:
        return "no step says which rank had how many"
    if tokens.rank is None:
        return "all ranks have equally many in every step" if tokens.max_ranks > 1 else "there is one rank"
    fewest, most = tokens.min_ranks, tokens.max_ranks
    ranks = f"{most}" if fewest == most else f"{fewest} to {most}"
    return (
        f"rank {tokens.rank} in {percent(tokens.share)} of the steps, with {percent(tokens.over_mean)} more than the"
        f" mean of {ranks} ranks (median), which wait for it; by chance it would be {percent(tokens.share_by_chance)}"
    )


def _loss_scale(scale: Range | None) -> str:
    if scale is None:
        return "not finite in any step"
    if not scale.changes:
        return "1, nothing is scaled" if scale.first == 1 else f"{short(scale.first)} throughout"
    return (
        f"{short(scale.first)} -> {short(scale.last)}, between {short(scale.min)} and {short(scale.max)},"
        f" {_count(scale.changes, 'change')}"
    )


def _learning_rate(rate: Range | None) -> str:
    if rate is None:
        return "no step says it"
    if not rate.changes:
        return f"{short(rate.first)} throughout"
    return f"{short(rate.first)} -> {short(rate.last)}, between {short(rate.min)} and {short(rate.max)}"


def _events(wrong: WrongEvents) -> Said:
    if not wrong.count:
        return Said("events", "right: one norm at most and one update in every applied step")
    examples = "; ".join(f"{text} (step {step})" for step, text in wrong.examples)
    return Said("events", f"wrong in {_count(wrong.count, 'step')}: {examples}", True)


def _named(shown: tuple[int, ...], count: int) -> str:
    numbers = ", ".join(map(str, shown))
    return f"step{'s' if count > 1 else ''} {numbers}{', ...' if count > len(shown) else ''}"


def _count(count: int, one: str) -> str:
    return f"{in_full(count)} {one}{'' if count == 1 else 's'}"
