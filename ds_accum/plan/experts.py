"""Experts: how many tokens each gets in a window, how far that spreads, and what accumulation can mend of it.

E experts, k of them a token, T token positions a window. Every token goes to expert e with probability p_e, alone: the
p_e add up to k. The tokens n_e of an expert are binomial, whatever couples the experts of one token:

    mean n_e = T p_e          variance = T p_e (1 - p_e)          no token at all: (1 - p_e)^T

The spread is how far a window's experts are from an even share m = k T / E, as a part of it: the root of the expected
mean over the experts of ((n_e - m) / m)^2. It has two parts, which add up as squares:

    spread^2    = imbalance^2 + noise^2
    imbalance^2 = E / k^2 x sum (p_e - k/E)^2         of the router: T is not in it, so no accumulation mends it
    noise^2     = E / (k^2 T) x sum p_e (1 - p_e)     of chance: falls with T, so with accumulation

Uniform routing has p_e = k/E: no imbalance, and noise^2 = (E - k) / (k T). Zipf routing with exponent s has p_e in
proportion to 1 / e^s, capped at 1: a token can't go to an expert twice. (Variance of a binomial and its parts: Feller,
An Introduction to Probability Theory, volume 1, chapter IX.)

An expert's batch is not its rank's: with expert parallel it gets tokens from every rank of its expert-parallel group,
and its gradient is summed over the expert-data-parallel ranks, so that in one optimizer step it has seen all of T.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, exp, log, log1p, sqrt

from ds_accum.batch import BatchLedger, ParallelLayout
from ds_accum.batch.divisibility import nearest_divisors
from ds_accum.batch.wording import require_integer, show, show_values
from ds_accum.errors import LayoutError, UsageError
from ds_accum.plan.quantities import read_ratio

__all__ = [
    "ExpertAccount",
    "ExpertWindow",
    "Routing",
    "account_experts",
    "expert_window",
    "parse_routing",
    "tokens_for_spread",
    "uniform_routing",
    "zipf_routing",
]

_MOST_EXPERTS = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Routing:
    """How likely a token goes to each expert. `probabilities` add up to `experts_per_token`, the favourite first."""

    name: str
    experts_per_token: int
    probabilities: tuple[Fraction, ...]
    imbalance_squared: Fraction = field(init=False)
    """The part of spread^2 that no number of tokens changes."""

    noise_squared_times_tokens: Fraction = field(init=False)
    """noise^2 x T: what is divided by the tokens of the window."""

    def __post_init__(self) -> None:
        # Both sums of the formulas from one, since the probabilities add up to k: E / k^2 x (sum p^2 - k^2 / E), and
        # E / k^2 x (k - sum p^2).
        assert sum(self.probabilities) == self.experts_per_token
        scale = Fraction(self.num_experts, self.experts_per_token**2)
        squares = sum(share**2 for share in self.probabilities)
        object.__setattr__(self, "imbalance_squared", scale * squares - 1)
        object.__setattr__(self, "noise_squared_times_tokens", scale * (self.experts_per_token - squares))

    @property
    def num_experts(self) -> int:
        """All experts of one layer."""
        return len(self.probabilities)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertWindow:
    """What the experts of one layer get in a window of `tokens` token positions.

    `spread`, `imbalance` and `noise` are parts of the mean; `most_tokens` and `fewest_tokens` the expectations of the
    most and the least favoured expert; `idle_experts` how many are expected to get no token.
    """

    tokens: int
    gradient_accumulation_steps: int
    mean_tokens: float
    most_tokens: float
    fewest_tokens: float
    spread: float
    imbalance: float
    noise: float
    idle_experts: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertAccount:
    """The experts of a layer under a batch and a layout.

    `windows` are those of growing accumulation, that of the ledger among them. `tokens_of_copy` are the tokens that one
    copy of an expert gets in one micro-batch, on average; `copies` how many ranks sum its gradient. With a
    `max_spread`, `needed_accumulation` is the smallest that keeps below it, None where none does.
    """

    routing: Routing
    ledger: BatchLedger
    layout: ParallelLayout
    sequence_length: int
    windows: tuple[ExpertWindow, ...]
    experts_per_rank: Fraction
    tokens_of_copy: Fraction
    copies: int
    max_spread: Fraction | None = None
    needed_accumulation: int | None = None

    @property
    def tokens_of_expert(self) -> Fraction:
        """Tokens that an expert has seen in one optimizer step, over all its copies, on average."""
        return self.tokens_of_copy * self.copies * self.ledger.gradient_accumulation_steps


def uniform_routing(num_experts: int, experts_per_token: int) -> Routing:
    """Every expert as likely as any other."""
    _require_sizes(num_experts, experts_per_token)
    share = Fraction(experts_per_token, num_experts)
    return Routing(name="uniform", experts_per_token=experts_per_token, probabilities=(share,) * num_experts)


def zipf_routing(num_experts: int, experts_per_token: int, exponent: Fraction) -> Routing:
    """Expert e, from 1, in proportion to 1 / e^exponent; those that would be beyond 1 are 1, and the rest share."""
    _require_sizes(num_experts, experts_per_token)
    if not 0 < exponent <= _LARGEST_EXPONENT:
        raise UsageError(
            f"the Zipf exponent must be more than 0 and at most {_LARGEST_EXPONENT}, not {float(exponent):g}",
            remedy="1.0 is the usual one; at 0 routing is uniform",
        )
    weights = [Fraction(exp(-float(exponent) * log(rank))) for rank in range(1, num_experts + 1)]
    certain = 0
    while True:
        # Weights fall, so those that exceed 1 are the first; each round takes the next of them out.
        left, total = experts_per_token - certain, sum(weights[certain:])
        if certain == num_experts or left * weights[certain] <= total:
            break
        certain += 1
    shares = [Fraction(1)] * certain
    if certain < num_experts:
        shares += [left * weight / total for weight in weights[certain:]]
    return Routing(name=f"Zipf {float(exponent):g}", experts_per_token=experts_per_token, probabilities=tuple(shares))


_LARGEST_EXPONENT = 20


def parse_routing(text: str, *, num_experts: int, experts_per_token: int) -> Routing:
    """The routing that "uniform", "zipf" (of exponent 1) or "zipf:1.2" names. Raises UsageError for anything else."""
    name, _, exponent = text.strip().lower().partition(":")
    if name == "uniform" and not exponent:
        return uniform_routing(num_experts, experts_per_token)
    if name == "zipf":
        return zipf_routing(num_experts, experts_per_token, read_ratio(exponent or "1", name="the Zipf exponent"))
    raise UsageError(f"there is no routing {text[:30]!r}", remedy="give uniform, or zipf:1.0 with its exponent")


def expert_window(routing: Routing, tokens: int, *, gradient_accumulation_steps: int = 1) -> ExpertWindow:
    """What a window of `tokens` token positions gives the experts."""
    require_integer(tokens, name="tokens of a window", error=UsageError)
    imbalance = routing.imbalance_squared
    noise = routing.noise_squared_times_tokens / tokens
    return ExpertWindow(
        tokens=tokens,
        gradient_accumulation_steps=gradient_accumulation_steps,
        mean_tokens=float(Fraction(routing.experts_per_token * tokens, routing.num_experts)),
        most_tokens=float(max(routing.probabilities) * tokens),
        fewest_tokens=float(min(routing.probabilities) * tokens),
        spread=sqrt(imbalance + noise),
        imbalance=sqrt(imbalance),
        noise=sqrt(noise),
        idle_experts=sum(_misses(share, tokens) for share in routing.probabilities),
    )


def tokens_for_spread(routing: Routing, max_spread: Fraction) -> int | None:
    """The fewest tokens of a window whose spread is at most `max_spread`; None where the imbalance alone exceeds it.

    T >= noise^2 T / (max_spread^2 - imbalance^2), exactly.
    """
    if max_spread <= 0:
        raise UsageError(f"a spread of {float(max_spread):g} takes all tokens there are", remedy="give more than 0")
    left = max_spread**2 - routing.imbalance_squared
    noise = routing.noise_squared_times_tokens
    if left < 0 or (left == 0 and noise):
        return None
    return 1 if noise == 0 else max(1, ceil(noise / left))


def account_experts(
    routing: Routing,
    ledger: BatchLedger,
    layout: ParallelLayout,
    *,
    sequence_length: int,
    max_spread: Fraction | None = None,
    accumulations: Sequence[int] | None = None,
) -> ExpertAccount:
    """The experts of a layer in one optimizer step, and in windows of growing accumulation: powers of two unless given.

    Raises LayoutError where expert parallel does not divide the experts.
    """
    experts, parallel = routing.num_experts, layout.expert_parallel_size
    if experts % parallel:
        near = nearest_divisors(experts, parallel)
        raise LayoutError(
            f"{experts} experts are not a multiple of expert parallel {show(parallel)}"
            f" (remainder {experts % parallel})",
            remedy=f"set expert parallel to {show_values(near.values)}",
        )
    micro_batch = replace(ledger, gradient_accumulation_steps=1).tokens_per_step(sequence_length=sequence_length)
    own = ledger.gradient_accumulation_steps
    needed = None
    if max_spread is not None:
        tokens = tokens_for_spread(routing, max_spread)
        needed = None if tokens is None else -(-tokens // micro_batch)
    shown = accumulations or _growing(own)
    extra = [own] if needed is None else [own, needed]
    windows = tuple(
        expert_window(routing, micro_batch * steps, gradient_accumulation_steps=steps)
        for steps in sorted({*shown, *extra})
    )
    copies = layout.expert_data_parallel_size
    return ExpertAccount(
        routing=routing,
        ledger=ledger,
        layout=layout,
        sequence_length=sequence_length,
        windows=windows,
        experts_per_rank=Fraction(experts, parallel),
        tokens_of_copy=Fraction(micro_batch * routing.experts_per_token, copies * experts),
        copies=copies,
        max_spread=max_spread,
        needed_accumulation=needed,
    )


def _growing(accumulation: int) -> list[int]:
    """Powers of two to beyond an accumulation, at least to 16."""
    steps = [1]
    while steps[-1] < max(2 * accumulation, 16):
        steps.append(2 * steps[-1])
    return steps


def _misses(share: Fraction, tokens: int) -> float:
    """How likely an expert gets none of so many tokens: (1 - p)^T."""
    return 0.0 if share == 1 else exp(tokens * log1p(-float(share)))


def _require_sizes(num_experts: int, experts_per_token: int) -> None:
    require_integer(num_experts, name="experts", error=UsageError)
    require_integer(experts_per_token, name="experts of a token", error=UsageError)
    if num_experts > _MOST_EXPERTS:
        raise UsageError(
            f"{show(num_experts)} experts are beyond the {_MOST_EXPERTS} that are worked out",
            remedy="give the experts of one layer",
        )
    if experts_per_token > num_experts:
        raise UsageError(
            f"a token can't go to {show(experts_per_token)} of {num_experts} experts",
            remedy=f"set the experts of a token to {num_experts} or fewer",
        )
