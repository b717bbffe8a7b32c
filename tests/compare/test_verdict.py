from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from ds_accum.compare.measures import held_bytes
from ds_accum.compare.result import CollectiveCount, Communication, Comparison
from ds_accum.compare.verdict import verdict
from tests.compare.example import (
    EXAMPLES,
    all_variants,
    comparison,
    not_measured,
    one_variant,
    replaced,
    variant,
    with_failures,
)


def said(measured: Comparison, topic: str, tone: str | None = None) -> list[str]:
    return [s.text for s in verdict(measured) if s.topic == topic and tone in (None, s.tone)]


def with_error(measured: Comparison, name: str, error: float | None) -> Comparison:
    parity = next(result.parity for result in measured.results if result.name == name)
    assert parity is not None
    return replaced(measured, name, parity=dataclasses.replace(parity, largest_error=error))


def with_seconds(measured: Comparison, name: str, *seconds: float) -> Comparison:
    speed = next(result.speed for result in measured.results if result.name == name)
    assert speed is not None
    return replaced(measured, name, speed=dataclasses.replace(speed, step_seconds=seconds))


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_comparison_has_a_verdict_of_single_sentences(name: str) -> None:
    sentences = verdict(EXAMPLES[name]())
    assert sentences
    for sentence in sentences:
        assert sentence.text and "\n" not in sentence.text
        assert not sentence.text.endswith(".")


@pytest.mark.parametrize("name", EXAMPLES)
def test_parity_comes_first_and_topics_stay_together(name: str) -> None:
    order = ["parity", "variants", "communication", "memory", "speed", "misuse"]
    places = [order.index(sentence.topic) for sentence in verdict(EXAMPLES[name]())]
    assert places == sorted(places)


# Parity.


def test_token_variants_agree_and_stock_ones_do_not_because_of_unevenness() -> None:
    token, stock, baselines = said(comparison(), "parity")
    assert token.startswith("all 4 token variants agree with the truth within float32 rounding")
    assert "with each other within" in token
    assert stock.startswith("all 4 stock variants leave the truth by 43 % of the update")
    assert "first at step 1, most in blocks.0.attention.qkv.weight" in stock
    assert "unevenness is why" in stock
    assert baselines.startswith("ddp and fsdp leave the truth by 43 %")


def test_a_token_variant_that_is_off_is_named_and_unevenness_is_no_longer_why() -> None:
    sentences = said(with_error(comparison(), "zero-3 token", 0.02), "parity")
    assert sentences[0].startswith("3 of 4 token variants (zero-0 token, zero-1 token and zero-2 token) agree")
    assert sentences[1].startswith("zero-3 token leaves the truth by 2 % of the update")
    assert not any("unevenness" in sentence for sentence in sentences)


def test_on_even_data_stock_agrees_too() -> None:
    even = comparison()
    for row in all_variants():
        even = with_error(even, row.name, None if row.engine == "single" else 3e-7)
    assert [sentence.tone for sentence in verdict(even) if sentence.topic == "parity"] == ["good"] * 3


def test_without_token_variants_nobody_knows_why() -> None:
    (sentence,) = said(one_variant(), "parity")
    assert "43 %" in sentence and "unevenness" not in sentence


@pytest.mark.parametrize("error", [math.inf, math.nan])
def test_a_variant_that_diverged_is_said_to_have(error: float) -> None:
    sentences = said(with_error(one_variant(), "zero-2 stock", error), "parity", "bad")
    assert "no longer finite" in sentences[0]


def test_a_small_error_is_not_rounded_to_none() -> None:
    (sentence,) = said(with_error(one_variant(), "zero-2 stock", 3.2e-4), "parity", "bad")
    assert "by 3.2e-04 of the update" in sentence


def test_without_the_truth_the_losses_are_compared_and_nothing_is_called_right() -> None:
    measured = comparison([variant("stock", 1), variant("token", 1)])
    for name in ("zero-1 stock", "zero-1 token"):
        measured = with_error(measured, name, None)
    (sentence,) = verdict(measured)[:1]
    assert sentence.tone == "plain"
    assert "the truth was not run" in sentence.text and "losses of 2 variants differ by up to" in sentence.text


# Variants without a result.


def test_failed_and_refused_variants_are_named_with_the_reason() -> None:
    sentences = said(with_failures(), "variants", "bad")
    assert len(sentences) == 3
    assert any(s.startswith("zero-2 stock was refused: DSA204") for s in sentences)
    assert "fsdp failed: RuntimeError: rank 1 ran out of memory <&>" in sentences
    assert "zero-3 token was not finished: broken off after 3 of 10 steps" in sentences


# Communication.


def test_the_stages_are_compared_in_bytes() -> None:
    sentence = said(comparison(), "communication")[0]
    assert sentence.startswith(
        "stage 3 moves 4.0 times the bytes of stage 1 at accumulation 4 (3.18 MB a step against 794 kB"
    )
    assert "stage 2 3.0 times" in sentence


def test_every_accumulation_is_compared_by_itself() -> None:
    rows = [variant("stock", stage, cut, name=f"zero-{stage} {cut}") for cut in (2, 8) for stage in (1, 3)]
    sentences = [s for s in said(comparison(rows), "communication") if s.startswith("stage 3 moves")]
    assert [sentence.split("accumulation ")[1].split()[0] for sentence in sentences] == ["2", "8"]
    assert "8.0 times" in sentences[1]


def test_zero_2_is_said_to_reduce_in_every_backward_and_once_where_it_is_held_back() -> None:
    held = variant("token", 2, name="held back")
    held = dataclasses.replace(held, config={**held.config, "ds_accum": {"reduction": "boundary"}})
    sentences = said(comparison([variant("stock", 2), held]), "communication")
    assert (
        "zero-2 stock reduces gradients in every backward, not once a step: 4 reductions of 2.12 MB together at accumulation 4"
        in sentences
    )
    assert (
        "held back reduces gradients once a step, at the boundary: 1 reduction of 529 kB together at accumulation 4"
        in sentences
    )


def test_what_token_weighting_adds_is_said_where_it_is_the_same_everywhere() -> None:
    adds = "weighting by tokens adds 1 collective of 64 B a step on every stage"
    assert adds in said(comparison(), "communication")
    counts = (CollectiveCount(kind="all-reduce", moment="step", calls=9.0, bytes=9.0),)
    other = replaced(comparison(), "zero-0 token", communication=Communication(counted=counts, expected=counts))
    assert adds not in said(other, "communication")


def test_a_count_that_is_not_the_formula_comes_first_and_shows_both() -> None:
    counts = (CollectiveCount(kind="all-reduce", moment="boundary", calls=2.0, bytes=8.0),)
    formula = (CollectiveCount(kind="all-reduce", moment="boundary", calls=1.0, bytes=4.0),)
    measured = replaced(comparison(), "ddp", communication=Communication(counted=counts, expected=formula))
    sentences = said(measured, "communication")
    assert sentences[0] == (
        "ddp does not communicate as its formula says: all-reduce (boundary) 2 of 8 B counted, 1 of 4 B by the formula"
    )
    assert "the counts equal the formula in 9 of 10 variants that have one" in sentences


def test_variants_without_a_formula_are_named() -> None:
    counts = (CollectiveCount(kind="all-reduce", moment="boundary", calls=2.0, bytes=8.0),)
    measured = replaced(comparison(), "fsdp", communication=Communication(counted=counts, expected=None))
    assert "the counts equal the formula in all 9 variants that have one; there is none for fsdp" in said(
        measured, "communication"
    )
    measured = replaced(one_variant(), "zero-2 stock", communication=Communication(counted=counts, expected=None))
    assert "there is no formula for zero-2 stock: these are counts alone" in said(measured, "communication")


# Memory and speed.


def test_the_least_and_the_most_memory_are_named() -> None:
    *_, sentence = said(comparison(), "memory")
    assert sentence.startswith("fsdp peaks lowest at 3.69 MB a rank and zero-0 token highest at 4.58 MB, 1.24 times")


def test_what_is_held_is_compared_with_what_the_planner_reckons() -> None:
    first, _ = said(comparison(), "memory")
    assert first == (
        "parameters, gradients and optimizer state of zero-0 stock, zero-0 token, zero-1 stock and 5 more take what the"
        " planner reckons, within 1 %"
    )


def test_a_variant_that_holds_more_than_planned_is_told_by_how_much() -> None:
    measured = comparison()
    memory = next(result.memory for result in measured.results if result.name == "zero-1 token")
    assert memory is not None and memory.estimate is not None
    more = dataclasses.replace(memory, gradients=memory.gradients + held_bytes(memory.estimate))
    first, *_ = said(replaced(measured, "zero-1 token", memory=more), "memory")
    assert first == "parameters, gradients and optimizer state of zero-1 token take 2 times what the planner reckons"


def pair(stock: list[float], token: list[float]) -> Comparison:
    measured = comparison([variant("stock", 1), variant("token", 1)])
    return with_seconds(with_seconds(measured, "zero-1 stock", *stock), "zero-1 token", *token)


def test_overlapping_spreads_are_no_difference() -> None:
    pairs, fastest = said(
        pair([1.0, 1.2, 1.1, 1.0, 1.3, 1.0, 1.0, 1.1], [1.1, 1.1, 1.0, 1.1, 1.2, 1.1, 1.2, 1.0]), "speed"
    )
    assert "no difference can be told from noise" in pairs
    assert "no difference from zero-1 token can be told" in fastest or "no difference from zero-1 stock" in fastest
    assert "times as long" not in fastest


def test_a_difference_beyond_the_spread_is_said() -> None:
    pairs, fastest = said(pair([1.0, 1.1] * 4, [2.0, 2.2] * 4), "speed")
    assert "zero-1 token 2.00 (2.00 to 2.00); told from noise: zero-1 token" in pairs
    assert fastest.startswith("zero-1 stock has the shortest median step, 1.05 s; zero-1 token takes 2 times as long")
    assert fastest.endswith("(this machine, noisy)")


def test_few_steps_tell_nothing_however_far_apart_they_are() -> None:
    pairs, fastest = said(pair([1.0, 1.1], [2.0, 2.2]), "speed")
    assert "no difference can be told from noise" in pairs
    assert fastest == "2 timed steps are too few to tell which variant is faster (at least 8 are needed)"


def test_seven_steps_of_eight_are_not_enough() -> None:
    pairs, _ = said(pair([1.0] * 8, [2.0] * 7 + [0.5]), "speed")
    assert "no difference can be told from noise" in pairs


# Misuse, and nothing at all.


def test_misuses_are_counted_by_engine() -> None:
    stock, token = said(comparison(), "misuse")
    assert stock.startswith(
        "in the middle of a window, stock lets 10 of 12 misuses change the step silently and stops 0"
    )
    assert token.startswith(
        "in the middle of a window, token lets 0 of 12 misuses change the step silently and stops 12"
    )


def test_nothing_measured_is_said_to_be_nothing() -> None:
    nothing: dict[str, Any] = {"parity": None, "communication": None, "memory": None, "speed": None}
    bare = not_measured()
    bare = dataclasses.replace(bare, results=tuple(dataclasses.replace(r, **nothing) for r in bare.results))
    assert [sentence.text for sentence in verdict(bare)] == ["nothing was measured"]
