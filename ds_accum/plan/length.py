"""How long a training is, in optimizer steps: the only unit that DeepSpeed's learning-rate schedulers count in.

    tokens a step    = global batch x sequence length
    steps of a token budget  = ceil(budget / tokens a step)
    steps of E epochs        = floor(E x micro-batches per epoch and rank / accumulation)
    warmup           = ceil(warmup samples / global batch), or tokens / tokens a step, or ratio x total steps

DeepSpeed steps its scheduler where it steps the optimizer, at the accumulation boundary (`_take_model_step`,
runtime/engine.py of 0.19.8); a length counted in micro-batches is accumulation times too long. What an epoch leaves in
an incomplete window stays there, and the next epoch completes it: see `BatchLedger.steps_per_epoch`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from ds_accum.batch import BatchLedger
from ds_accum.batch.wording import require_integer, show
from ds_accum.errors import UsageError

__all__ = ["Epoch", "TrainingLength", "Warmup", "epoch_of", "training_length"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Epoch:
    """One pass over the samples, from an empty window on."""

    num_samples: int
    micro_batches: int
    """Of each data-parallel rank."""

    steps: int
    left_over_micro_batches: int
    """What stays in the window: fewer than accumulation steps."""

    repeated_samples: int
    """Samples that torch's DistributedSampler deals twice, so that every rank gets the same number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Warmup:
    """How long the learning rate rises: exactly one of these. `ratio` is of all optimizer steps."""

    steps: int | None = None
    samples: int | None = None
    tokens: int | None = None
    ratio: Fraction | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("steps", "samples", "tokens", "ratio") if getattr(self, name) is not None]
        if len(given) != 1:
            raise UsageError(
                f"a warmup is given in one unit, not in {' and '.join(given) or 'none'}",
                remedy="give one of steps, samples, tokens and ratio",
            )
        if self.ratio is None:
            name = given[0]
            require_integer(getattr(self, name), name=f"warmup {name}", error=UsageError)
        elif not 0 < self.ratio <= 1:
            raise UsageError(
                f"the warmup ratio must be more than 0 and at most 1, not {float(self.ratio):g}",
                remedy="give it as a part of all optimizer steps, as in 0.03",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingLength:
    """`total_steps` optimizer steps, which scheduler keys of DeepSpeed call `total_num_steps`.

    `formula` says how they came about. `warmup_steps` is `warmup_num_steps`, None without a warmup.
    """

    total_steps: int
    total_samples: int
    total_tokens: int | None
    formula: str
    micro_batches: int
    """Of each data-parallel rank: what a scheduler that is stepped in every micro-batch would count."""

    warmup_steps: int | None = None
    warmup_formula: str = ""


def epoch_of(ledger: BatchLedger, num_samples: int, *, drop_last: bool = False) -> Epoch:
    """One pass over `num_samples` samples with DeepSpeed's own data loader; `drop_last` as there."""
    require_integer(num_samples, name="number of samples", error=UsageError)
    micro_batches = ledger.micro_batches_per_epoch(num_samples, drop_last=drop_last)
    steps = ledger.steps_per_epoch(num_samples, incomplete_window=False, drop_last=drop_last)
    return Epoch(
        num_samples=num_samples,
        micro_batches=micro_batches,
        steps=steps,
        left_over_micro_batches=micro_batches - steps * ledger.gradient_accumulation_steps,
        repeated_samples=-num_samples % ledger.data_parallel_size,
    )


def training_length(
    ledger: BatchLedger,
    *,
    sequence_length: int | None = None,
    total_steps: int | None = None,
    token_budget: int | None = None,
    epoch: Epoch | None = None,
    epochs: int = 1,
    warmup: Warmup | None = None,
) -> TrainingLength:
    """The length from exactly one of a number of steps, a token budget (with a sequence length), and epochs.

    Raises UsageError where none or several are given, where tokens are but no sequence length, where no step comes
    about, and where the warmup is longer than the training.
    """
    batch, accumulation = ledger.global_batch_size, ledger.gradient_accumulation_steps
    given = [total_steps is not None, token_budget is not None, epoch is not None]
    if sum(given) != 1:
        raise UsageError(
            f"a training is as long as one of steps, tokens and epochs says, and {sum(given)} of them are given",
            remedy="give one of them",
        )
    if epoch is not None:
        require_integer(epochs, name="epochs", error=UsageError)
        steps = epochs * epoch.micro_batches // accumulation
        formula = f"floor({show(epochs)} x {show(epoch.micro_batches)} micro-batches / accumulation {accumulation})"
    elif token_budget is not None:
        require_integer(token_budget, name="token budget", error=UsageError)
        tokens = _tokens_per_step(ledger, sequence_length, "a token budget")
        steps = -(-token_budget // tokens)
        formula = f"ceil({show(token_budget)} tokens / {show(tokens)} a step)"
    else:
        require_integer(total_steps, name="optimizer steps", error=UsageError)
        assert total_steps is not None
        steps, formula = total_steps, "as given"
    if steps == 0:
        raise UsageError(
            f"no optimizer step comes about: {formula} = 0",
            remedy="train more epochs, or accumulate fewer micro-batches",
        )
    warmup_steps, warmup_formula = None, ""
    if warmup is not None:
        warmup_steps, warmup_formula = _warmup(warmup, ledger, sequence_length, steps)
        if warmup_steps > steps:
            raise UsageError(
                f"the warmup of {show(warmup_steps)} optimizer steps is longer than the training of {show(steps)}",
                remedy=f"warm up for {show(steps)} steps or fewer",
            )
    return TrainingLength(
        total_steps=steps,
        total_samples=steps * batch,
        total_tokens=None
        if sequence_length is None
        else steps * ledger.tokens_per_step(sequence_length=sequence_length),
        formula=formula,
        micro_batches=steps * accumulation,
        warmup_steps=warmup_steps,
        warmup_formula=warmup_formula,
    )


def _warmup(warmup: Warmup, ledger: BatchLedger, sequence_length: int | None, steps: int) -> tuple[int, str]:
    """The steps of a warmup, rounded up: DeepSpeed refuses 0 (`WarmupLR`, runtime/lr_schedules.py of 0.19.8)."""
    if warmup.steps is not None:
        return warmup.steps, "as given"
    if warmup.samples is not None:
        batch = ledger.global_batch_size
        return -(-warmup.samples // batch), f"ceil({show(warmup.samples)} samples / {show(batch)} a step)"
    if warmup.tokens is not None:
        tokens = _tokens_per_step(ledger, sequence_length, "a warmup in tokens")
        return -(-warmup.tokens // tokens), f"ceil({show(warmup.tokens)} tokens / {show(tokens)} a step)"
    assert warmup.ratio is not None
    return ceil(warmup.ratio * steps), f"ceil({float(warmup.ratio):g} x {show(steps)} steps)"


def _tokens_per_step(ledger: BatchLedger, sequence_length: int | None, needed_for: str) -> int:
    if sequence_length is None:
        raise UsageError(f"{needed_for} needs a sequence length", remedy="give the sequence length in tokens")
    return ledger.tokens_per_step(sequence_length=sequence_length)
