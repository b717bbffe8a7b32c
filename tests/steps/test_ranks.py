"""Which rank the others wait for, and how many ranks a log allows."""

from __future__ import annotations

from random import Random

import pytest

from ds_accum.steps.columns import Steps
from ds_accum.steps.ranks import RankTokens, rank_tokens


def steps_of(dealt: list[list[int]]) -> Steps:
    """Steps whose tokens are dealt to the ranks like this."""
    steps = Steps()
    for tokens in dealt:
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
    assert (tokens.ranks, tokens.ranks_are_certain) == (3, True)
    assert tokens.over_mean == pytest.approx((130 * 3 / 330 + 120 * 3 / 310) / 2 - 1)


def test_of_ranks_that_are_first_equally_often_the_lowest_is_named() -> None:
    assert found([[1, 2], [2, 1]]).rank == 0


def test_ranks_with_equal_counts_wait_for_nobody() -> None:
    tokens = found([[100, 100, 100, 100], [7, 7, 7, 7]])
    assert (tokens.rank, tokens.over_mean, tokens.ranks, tokens.ranks_are_certain) == (None, 0.0, 4, True)


def test_one_rank_is_one_rank() -> None:
    tokens = found([[100], [90]])
    assert (tokens.rank, tokens.ranks, tokens.ranks_are_certain) == (None, 1, True)


@pytest.mark.parametrize("ranks", [2, 3, 8, 64, 500])
def test_the_number_of_ranks_is_never_taken_for_more_than_it_is(ranks: int) -> None:
    random = Random(ranks)
    dealt = [[random.randrange(500, 1500) for _ in range(ranks)] for _ in range(50)]
    tokens = found(dealt)
    assert tokens.ranks is not None and tokens.over_mean is not None
    assert tokens.ranks <= ranks and (tokens.ranks == ranks or not tokens.ranks_are_certain)
    true_excesses = sorted(max(row) * ranks / sum(row) - 1 for row in dealt if row.index(max(row)) == tokens.rank)
    assert 0 <= tokens.over_mean <= true_excesses[-1]


def test_a_run_that_went_on_with_fewer_ranks_has_no_number_of_them() -> None:
    tokens = found([[10, 10, 10, 11], [10, 11]])
    assert (tokens.ranks, tokens.over_mean) == (None, None)


def test_steps_that_say_nothing_about_ranks_are_left_out() -> None:
    steps = steps_of([[1, 2], [0, 0]])
    steps.num_tokens.append(5)
    for name in ("max_rank_tokens", "max_rank", "min_rank_tokens", "min_rank"):
        getattr(steps, name).append(-1)
    tokens = rank_tokens(steps)
    assert tokens is not None and tokens.steps == 1
    nothing = Steps()
    nothing.num_tokens.append(5)
    nothing.max_rank_tokens.append(-1)
    nothing.max_rank.append(-1)
    assert rank_tokens(nothing) is None
