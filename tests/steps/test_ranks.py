"""Which rank the others wait for, and how much more than the mean rank it has."""

from __future__ import annotations

import pytest

from ds_accum.steps.columns import Steps
from ds_accum.steps.ranks import RankTokens, rank_tokens


def steps_of(dealt: list[list[int]]) -> Steps:
    """Steps whose tokens are dealt to the ranks like this."""
    steps = Steps()
    for tokens in dealt:
        steps.ranks.append(len(tokens))
        steps.num_tokens.append(sum(tokens))
        for name, chosen in (("max", max(tokens)), ("min", min(tokens))):
            getattr(steps, f"{name}_rank_tokens").append(chosen)
            getattr(steps, f"{name}_rank").append(tokens.index(chosen))
    return steps


def found(dealt: list[list[int]]) -> RankTokens:
    tokens = rank_tokens(steps_of(dealt))
    assert tokens is not None
    return tokens


def test_the_rank_that_has_most_tokens_most_often_is_named() -> None:
    tokens = found([[100, 100, 130], [100, 160, 100], [90, 100, 120], [100, 100, 100]])
    assert (tokens.rank, tokens.share, tokens.steps, tokens.equal_steps) == (2, 0.5, 4, 1)
    assert (tokens.min_ranks, tokens.max_ranks, tokens.share_by_chance) == (3, 3, 0.25)
    assert tokens.over_mean == pytest.approx((130 * 3 / 330 + 120 * 3 / 310) / 2 - 1)


def test_of_ranks_that_are_first_equally_often_the_lowest_is_named() -> None:
    assert found([[1, 2], [2, 1]]).rank == 0


def test_ranks_with_equal_counts_wait_for_nobody() -> None:
    tokens = found([[100, 100, 100, 100], [7, 7, 7, 7]])
    assert (tokens.rank, tokens.share, tokens.share_by_chance, tokens.over_mean) == (None, 0.0, 0.0, 0.0)
    assert (tokens.min_ranks, tokens.max_ranks) == (4, 4)


def test_one_rank_is_one_rank() -> None:
    tokens = found([[100], [90]])
    assert (tokens.rank, tokens.min_ranks, tokens.max_ranks) == (None, 1, 1)


def test_each_step_of_a_run_that_went_on_with_fewer_ranks_is_measured_by_its_own() -> None:
    tokens = found([[10, 10, 10, 30], [10, 10, 10, 30], [10, 30], [30, 10]])
    assert (tokens.rank, tokens.over_mean) == (3, 1.0)
    assert (tokens.min_ranks, tokens.max_ranks, tokens.share_by_chance) == (2, 4, 0.375)


def test_steps_that_say_nothing_about_ranks_are_left_out() -> None:
    steps = steps_of([[1, 2], [0, 0]])
    steps.num_tokens.append(5)
    steps.ranks.append(2048)
    for name in ("max_rank_tokens", "max_rank", "min_rank_tokens", "min_rank"):
        getattr(steps, name).append(-1)
    tokens = rank_tokens(steps)
    assert tokens is not None and tokens.steps == 1
    steps.ranks[0] = 0
    assert rank_tokens(steps) is None
    nothing = Steps()
    nothing.ranks.append(2048)
    nothing.num_tokens.append(5)
    nothing.max_rank_tokens.append(-1)
    nothing.max_rank.append(-1)
    assert rank_tokens(nothing) is None
