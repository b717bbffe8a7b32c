"""Which rank has the most tokens: all others wait for it at the boundary.

How much more it has is told beside the mean rank, T / ranks. A run that was resumed on another number of ranks has
each step measured by its own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ds_accum.steps.columns import Steps
from ds_accum.steps.numbers import median

__all__ = ["RankTokens", "rank_tokens"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankTokens:
    """How tokens are dealt to the ranks. `rank` has the most in `share` of the steps (None where all ranks always have
    equally many), then in the middle `over_mean` more than the mean rank, as a share of it. By chance a rank would have
    the most in `share_by_chance` of them.
    """

    steps: int
    equal_steps: int
    rank: int | None
    share: float
    share_by_chance: float
    over_mean: float
    min_ranks: int
    max_ranks: int


def rank_tokens(steps: Steps) -> RankTokens | None:
    """None where no step says which rank had what, as above 1,024 ranks."""
    known = [
        index
        for index, most in enumerate(steps.max_rank_tokens)
        if min(most, steps.num_tokens[index], steps.ranks[index]) > 0 and steps.max_rank[index] >= 0
    ]
    if not known:
        return None
    unequal = [index for index in known if steps.max_rank_tokens[index] > steps.min_rank_tokens[index] >= 0]
    # Of ranks that are first equally often, the lowest: the same log gives the same answer.
    times = Counter(steps.max_rank[index] for index in unequal)
    rank = min(times, key=lambda rank: (-times[rank], rank), default=None)
    excesses = [
        steps.max_rank_tokens[index] * steps.ranks[index] / steps.num_tokens[index] - 1
        for index in unequal
        if steps.max_rank[index] == rank
    ]
    ranks = [steps.ranks[index] for index in known]
    return RankTokens(
        steps=len(known),
        equal_steps=len(known) - len(unequal),
        rank=rank,
        share=len(excesses) / len(known),
        share_by_chance=sum(1 / steps.ranks[index] for index in unequal) / len(known),
        over_mean=median(excesses) if excesses else 0.0,
        min_ranks=min(ranks),
        max_ranks=max(ranks),
    )
