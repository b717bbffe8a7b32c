"""How tokens spread over experts: exact where all outcomes can be listed, and beside a simulation where they can't."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate, combinations, product
from math import isclose, prod, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_accum.batch import BatchLedger, ParallelLayout
from ds_accum.errors import LayoutError, UsageError
from ds_accum.plan.experts import (
    Routing,
    account_experts,
    expert_window,
    parse_routing,
    tokens_for_spread,
    uniform_routing,
    zipf_routing,
)

LEDGER = BatchLedger(micro_batch_size=1, gradient_accumulation_steps=8, data_parallel_size=8)
WORLD = ParallelLayout(world_size=8, expert_parallel_size=4)


@st.composite
def routings(draw: st.DrawFn) -> Routing:
    experts = draw(st.integers(1, 40))
    chosen = draw(st.integers(1, experts))
    exponent = draw(st.sampled_from(("0", "0.5", "1", "1.3", "3")))
    return uniform_routing(experts, chosen) if exponent == "0" else zipf_routing(experts, chosen, Fraction(exponent))


# ------------------------------------------------------------------------------------------------------------- formulas


@given(routings())
@settings(deadline=None)
def test_probabilities_are_those_of_one_token(routing: Routing) -> None:
    assert sum(routing.probabilities) == routing.experts_per_token
    assert all(0 < share <= 1 for share in routing.probabilities)
    assert list(routing.probabilities) == sorted(routing.probabilities, reverse=True)


@given(routing=routings(), tokens=st.integers(1, 10**6), steps=st.integers(2, 64))
@settings(deadline=None)
def test_accumulation_divides_the_noise_by_its_root_and_leaves_the_imbalance(
    routing: Routing, tokens: int, steps: int
) -> None:
    one, more = expert_window(routing, tokens), expert_window(routing, tokens * steps)
    assert more.imbalance == one.imbalance
    assert isclose(more.noise * sqrt(steps), one.noise, rel_tol=1e-12, abs_tol=1e-300)
    for window in (one, more):
        assert isclose(window.spread**2, window.imbalance**2 + window.noise**2, rel_tol=1e-12, abs_tol=1e-300)


@given(experts=st.integers(1, 512), chosen=st.integers(1, 16), tokens=st.integers(1, 10**9))
@settings(deadline=None)
def test_uniform_routing_has_noise_alone_of_e_minus_k_over_k_t(experts: int, chosen: int, tokens: int) -> None:
    if chosen > experts:
        return
    routing = uniform_routing(experts, chosen)
    assert routing.imbalance_squared == 0
    assert routing.noise_squared_times_tokens == Fraction(experts - chosen, chosen)
    assert isclose(expert_window(routing, tokens).spread, sqrt((experts - chosen) / (chosen * tokens)), abs_tol=1e-300)


@given(routing=routings(), percent=st.integers(1, 400))
@settings(deadline=None)
def test_the_tokens_for_a_spread_are_the_fewest_that_keep_it(routing: Routing, percent: int) -> None:
    wanted = Fraction(percent, 100)
    tokens = tokens_for_spread(routing, wanted)

    def squared(number: int) -> Fraction:
        return routing.imbalance_squared + routing.noise_squared_times_tokens / number

    if tokens is None:
        assert squared(10**40) > wanted**2
    else:
        assert squared(tokens) <= wanted**2
        assert tokens == 1 or squared(tokens - 1) > wanted**2


def test_zipf_is_proportional_below_1_and_nobody_gets_a_token_twice() -> None:
    routing = zipf_routing(8, 1, Fraction(1))
    assert [float(routing.probabilities[0] / share) for share in routing.probabilities] == pytest.approx(range(1, 9))
    steep = zipf_routing(8, 3, Fraction(3))
    assert steep.probabilities[:2] == (1, 1)
    assert [float(steep.probabilities[2] / share) for share in steep.probabilities[2:]] == pytest.approx(
        [(rank / 3) ** 3 for rank in range(3, 9)]
    )


# ------------------------------------------------------------------------------------------------------------- by listing


def exact_spread_squared(counts: Iterator[tuple[Fraction, Sequence[int]]], even: Fraction) -> Fraction:
    """The expected mean over the experts of ((n - m) / m)^2, over outcomes with their probabilities."""
    total = Fraction(0)
    for probability, tokens in counts:
        total += probability * sum(((number - even) / even) ** 2 for number in tokens) / len(tokens)
    return total


@pytest.mark.parametrize(("experts", "chosen", "tokens"), [(3, 1, 4), (4, 2, 3), (5, 3, 2), (4, 4, 2), (1, 1, 3)])
def test_uniform_spread_is_that_of_all_outcomes(experts: int, chosen: int, tokens: int) -> None:
    choices = list(combinations(range(experts), chosen))

    def outcomes() -> Iterator[tuple[Fraction, Sequence[int]]]:
        for window in product(choices, repeat=tokens):
            counts = [sum(expert in token for token in window) for expert in range(experts)]
            yield Fraction(1, len(choices) ** tokens), counts

    routing = uniform_routing(experts, chosen)
    exact = exact_spread_squared(outcomes(), Fraction(chosen * tokens, experts))
    assert exact == routing.imbalance_squared + routing.noise_squared_times_tokens / tokens


@pytest.mark.parametrize("exponent", ["0.5", "1", "2"])
def test_zipf_spread_and_idle_experts_are_those_of_all_outcomes(exponent: str) -> None:
    tokens, routing = 4, zipf_routing(3, 1, Fraction(exponent))
    outcomes = [
        (prod((routing.probabilities[expert] for expert in window), start=Fraction(1)), window)
        for window in product(range(3), repeat=tokens)
    ]
    counts = ((chance, [window.count(expert) for expert in range(3)]) for chance, window in outcomes)
    exact = exact_spread_squared(counts, Fraction(tokens, 3))
    assert exact == routing.imbalance_squared + routing.noise_squared_times_tokens / tokens
    idle = sum(chance * (3 - len(set(window))) for chance, window in outcomes)
    assert expert_window(routing, tokens).idle_experts == pytest.approx(float(idle))


# ---------------------------------------------------------------------------------------------------------- by simulation


def router(routing: Routing) -> Callable[[random.Random], Sequence[int]]:
    """Draws the experts of one token, each with its own probability: systematic sampling (Madow 1949)."""
    ends = list(accumulate(map(float, routing.probabilities)))[:-1]
    chosen = range(routing.experts_per_token)
    if routing.name == "uniform":
        return lambda draw: draw.sample(range(routing.num_experts), len(chosen))

    def systematic(draw: random.Random) -> Sequence[int]:
        point = draw.random()
        return [bisect_right(ends, point + step) for step in chosen]

    return systematic


def simulated(routing: Routing, tokens: int, windows: int, draw: random.Random) -> tuple[float, list[float]]:
    """The spread over many windows, and the mean tokens of each expert."""
    even = routing.experts_per_token * tokens / routing.num_experts
    squares, totals, route = 0.0, [0] * routing.num_experts, router(routing)
    for _ in range(windows):
        counts = [0] * routing.num_experts
        for _ in range(tokens):
            for expert in route(draw):
                counts[expert] += 1
        squares += sum((count / even - 1) ** 2 for count in counts) / routing.num_experts
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
    return sqrt(squares / windows), [total / windows for total in totals]


@pytest.mark.parametrize("tokens", [16, 64, 256])
@pytest.mark.parametrize(("name", "experts", "chosen"), [("uniform", 16, 2), ("zipf:1", 16, 1), ("zipf:0.5", 8, 2)])
def test_the_spread_is_that_of_a_simulation(name: str, experts: int, chosen: int, tokens: int) -> None:
    routing = parse_routing(name, num_experts=experts, experts_per_token=chosen)
    spread, means = simulated(routing, tokens, windows=40_000 // tokens, draw=random.Random(7))
    expected = expert_window(routing, tokens)
    assert spread == pytest.approx(expected.spread, rel=0.05)
    assert means[0] == pytest.approx(expected.most_tokens, rel=0.05)
    assert sum(means) == pytest.approx(chosen * tokens)


def test_in_a_simulation_accumulation_mends_uniform_routing_and_not_zipf() -> None:
    draw = random.Random(11)
    uniform, zipf = uniform_routing(8, 1), zipf_routing(8, 1, Fraction(1))
    short, long = (simulated(uniform, tokens, 200, draw)[0] for tokens in (32, 512))
    assert long == pytest.approx(short / 4, rel=0.15)
    short, long = (simulated(zipf, tokens, 200, draw)[0] for tokens in (32, 512))
    assert 0.95 * sqrt(zipf.imbalance_squared) < long < short < 1.3 * sqrt(zipf.imbalance_squared)


# -------------------------------------------------------------------------------------------------------------- accounts


@given(
    micro=st.integers(1, 4),
    data=st.sampled_from((1, 2, 4)),
    tensor=st.sampled_from((1, 2)),
    pipeline=st.sampled_from((1, 2)),
    parallel=st.sampled_from((1, 2, 4)),
    accumulation=st.integers(1, 8),
)
@settings(deadline=None)
def test_an_expert_sees_its_part_of_the_whole_global_batch(
    micro: int, data: int, tensor: int, pipeline: int, parallel: int, accumulation: int
) -> None:
    if data * tensor % parallel:
        return
    layout = ParallelLayout(
        world_size=data * tensor * pipeline,
        tensor_parallel_size=tensor,
        pipeline_parallel_size=pipeline,
        expert_parallel_size=parallel,
    )
    ledger = BatchLedger(micro_batch_size=micro, gradient_accumulation_steps=accumulation, data_parallel_size=data)
    account = account_experts(uniform_routing(8, 2), ledger, layout, sequence_length=64)
    assert account.tokens_of_expert == Fraction(2 * ledger.tokens_per_step(sequence_length=64), 8)
    assert account.copies * parallel == data * tensor
    assert account.experts_per_rank * parallel == 8


def test_the_needed_accumulation_is_the_smallest_and_is_shown() -> None:
    account = account_experts(uniform_routing(64, 2), LEDGER, WORLD, sequence_length=4096, max_spread=Fraction(1, 100))
    assert account.needed_accumulation == 10
    spreads = {window.gradient_accumulation_steps: window.spread for window in account.windows}
    assert spreads[10] <= 0.01 < spreads[8]
    assert list(spreads) == [1, 2, 4, 8, 10, 16]
    assert (account.experts_per_rank, account.copies, account.tokens_of_copy) == (16, 2, 512)
    assert account.tokens_of_expert == 8192


def test_no_accumulation_mends_the_router() -> None:
    routing = zipf_routing(64, 2, Fraction(1))
    account = account_experts(routing, LEDGER, WORLD, sequence_length=4096, max_spread=Fraction(1, 20))
    assert account.needed_accumulation is None
    assert min(window.spread for window in account.windows) >= sqrt(routing.imbalance_squared) > 1.9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("uniform", 0, 1), "experts must be at least 1, not 0"),
        (("uniform", 8, 9), "a token can't go to 9 of 8 experts"),
        (("uniform", 10**9, 1), "1000000000 experts are beyond"),
        (("random", 8, 2), "there is no routing 'random'"),
        (("uniform:2", 8, 2), "there is no routing 'uniform:2'"),
        (("zipf:nan", 8, 2), "the Zipf exponent 'nan' is no number above 0"),
        (("zipf:21", 8, 2), "the Zipf exponent must be more than 0 and at most 20, not 21"),
    ],
)
def test_what_is_no_routing_is_refused(arguments: tuple[str, int, int], message: str) -> None:
    name, experts, chosen = arguments
    with pytest.raises(UsageError, match=message) as caught:
        parse_routing(name, num_experts=experts, experts_per_token=chosen)
    assert caught.value.remedy is not None


def test_experts_that_do_not_divide_and_a_spread_of_nothing_are_refused() -> None:
    with pytest.raises(
        LayoutError, match=r"6 experts are not a multiple of expert parallel 4 \(remainder 2\)"
    ) as caught:
        account_experts(uniform_routing(6, 1), LEDGER, WORLD, sequence_length=8)
    assert caught.value.remedy == "set expert parallel to 3 or 6"
    with pytest.raises(UsageError, match="a spread of 0"):
        tokens_for_spread(uniform_routing(6, 1), Fraction(0))
