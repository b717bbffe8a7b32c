"""Which rank has the most tokens: all others wait for it at the boundary.

A line names the rank with the most and the one with the fewest, not how many there are. With N ranks the mean is
T / N, and no step may have its largest below it or its smallest above it:

    max over steps of T / max_rank_tokens  <=  N  <=  min over steps of T / min_rank_tokens

and N is more than any rank that is named. The smallest such N makes the excess over the mean the smallest: what is
said is true, and exact where the largest N is the same one.
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
    equally many), then in the middle `over_mean` more than the mean rank, as a share of it, of at least `ranks` ranks.
    """

    steps: int
    equal_steps: int
    rank: int | None
    share: float
    over_mean: float | None
    ranks: int | None
    ranks_are_certain: bool


def rank_tokens(steps: Steps) -> RankTokens | None:
    """None where no step says which rank had what, as above 1,024 ranks."""
    known = [
        index
        for index, most in enumerate(steps.max_rank_tokens)
        if most > 0 and steps.max_rank[index] >= 0 and steps.num_tokens[index] > 0
    ]
    if not known:
        return None
    unequal = [index for index in known if steps.max_rank_tokens[index] > steps.min_rank_tokens[index] >= 0]
    ranks, certain = _ranks(steps, known, unequal)
    if not unequal:
        return RankTokens(
            steps=len(known),
            equal_steps=len(known),
            rank=None,
            share=0.0,
            over_mean=0.0,
            ranks=ranks,
            ranks_are_certain=certain,
        )
    # Of ranks that are first equally often, the lowest: the same log gives the same answer.
    times = Counter(steps.max_rank[index] for index in unequal)
    rank = min(times, key=lambda rank: (-times[rank], rank))
    its = [index for index in unequal if steps.max_rank[index] == rank]
    over_mean = None
    if ranks is not None:
        over_mean = median(steps.max_rank_tokens[index] * ranks / steps.num_tokens[index] - 1 for index in its)
    return RankTokens(
        steps=len(known),
        equal_steps=len(known) - len(unequal),
        rank=rank,
        share=times[rank] / len(known),
        over_mean=over_mean,
        ranks=ranks,
        ranks_are_certain=certain,
    )


def _ranks(steps: Steps, known: list[int], unequal: list[int]) -> tuple[int | None, bool]:
    """The fewest ranks that the counts allow and whether they allow no other; None where they contradict each other, as
    when a run is resumed on another number of ranks."""
    fewest = max(-(-steps.num_tokens[index] // steps.max_rank_tokens[index]) for index in known)
    # Where all are equal both ranks are named by convention, and mean nothing.
    fewest = max([fewest, *(max(steps.max_rank[index], steps.min_rank[index]) + 1 for index in unequal)])
    limits = [
        steps.num_tokens[index] // steps.min_rank_tokens[index] for index in known if steps.min_rank_tokens[index] > 0
    ]
    most = min(limits, default=None)
    if most is not None and most < fewest:
        return None, False
    return fewest, most == fewest
