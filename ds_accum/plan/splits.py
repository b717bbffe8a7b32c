"""Several splits of one global batch side by side: what is equal between them, and what is not.

    compare_splits(parse_splits("4x8x4,8x16x1"))       # micro batch x data parallel x accumulation: 128 samples both

torch's DistributedSampler deals sample p of the epoch's order to rank p mod data parallel, as its floor(p / data
parallel)-th. So an optimizer step of B samples takes those from k B to (k+1) B whatever the split is: the same samples
in the same step, but on other ranks and in other micro-batches:

    rank = p mod DP    micro-batch = floor(p / DP / MBS) mod GA    place in it = floor(p / DP) mod MBS

What depends on who shares a micro-batch differs: the statistics of BatchNorm, a mean over the tokens of unequal
micro-batches, dropout, the load of experts; and sums are rounded in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ds_accum.batch import BatchLedger, ParallelLayout
from ds_accum.batch.divisibility import divisors
from ds_accum.batch.wording import show
from ds_accum.errors import UsageError
from ds_accum.plan.account import ModelSize, StepAccount, account_step
from ds_accum.plan.length import Epoch, epoch_of
from ds_accum.plan.memory import MemoryEstimate, estimate_memory
from ds_accum.plan.training import TrainingSetup

__all__ = [
    "MOST_SPLITS",
    "Place",
    "SplitAccount",
    "all_splits",
    "compare_splits",
    "parse_splits",
    "place_of",
    "samples_of",
]

MOST_SPLITS = 40
"""Nobody reads a longer table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where one sample of an epoch is computed; all count from 0."""

    step: int
    rank: int
    """The data-parallel rank."""

    micro_batch: int
    position: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitAccount:
    """One split: its account, and what it does to everything that is not equal."""

    account: StepAccount
    memory: tuple[MemoryEstimate | None, ...] | None
    """By ZeRO stage, for a model whose shape is known; None where DeepSpeed refuses the stage."""

    first_micro_batch: tuple[int, ...]
    """The samples of a step that data-parallel rank 0 computes together first, numbered in the order of the epoch."""

    epoch: Epoch | None = None

    @property
    def ledger(self) -> BatchLedger:
        """The split itself."""
        return self.account.ledger

    @property
    def normalized_together(self) -> int:
        """Samples over which BatchNorm takes its statistics on one rank: the micro-batch."""
        return self.ledger.micro_batch_size

    @property
    def normalized_together_synchronized(self) -> int:
        """The same for SyncBatchNorm over all ranks: micro batch x data parallel, never the global batch."""
        return self.ledger.micro_batch_size * self.ledger.data_parallel_size


def parse_splits(text: str) -> tuple[BatchLedger, ...]:
    """Splits as in "4x8x4,8x16x1": micro batch x data parallel x accumulation.

    Raises UsageError for anything else, for one that is given twice, and where the global batches differ.
    """
    splits = [_parse_split(word) for word in text.split(",")]
    if len(splits) > MOST_SPLITS:
        raise UsageError(
            f"{len(splits)} splits are more than the {MOST_SPLITS} that a table shows", remedy="give fewer of them"
        )
    _require_comparable(splits)
    return tuple(splits)


def all_splits(global_batch_size: int, *, data_parallel_size: int | None = None) -> tuple[BatchLedger, ...]:
    """Every split of a global batch, of one data parallel size if that is given; small micro-batches first.

    Raises BatchError if the size does not divide the batch, UsageError where there are more than `MOST_SPLITS`.
    """
    # Says what is wrong with either number, and the nearest that would do.
    BatchLedger.solve(data_parallel_size=data_parallel_size or 1, global_batch_size=global_batch_size)
    sizes = divisors(global_batch_size)
    if sizes is None:
        raise UsageError(
            f"global batch {show(global_batch_size)} has too many divisors to look for",
            remedy="name the splits, as in 4x8x4,8x16x1",
        )
    ranks = sizes if data_parallel_size is None else (data_parallel_size,)
    found = [
        BatchLedger.solve(data_parallel_size=size, global_batch_size=global_batch_size, micro_batch_size=micro)
        for micro in sizes
        for size in ranks
        if global_batch_size % (micro * size) == 0
    ]
    if len(found) > MOST_SPLITS:
        raise UsageError(
            f"global batch {show(global_batch_size)} has {len(found)} splits, more than the {MOST_SPLITS} that a table"
            " shows",
            remedy="name those to compare, as in 4x8x4,8x16x1"
            if data_parallel_size is not None
            else "take those of one data parallel size, which are all and not any, or name them, as in 4x8x4,8x16x1",
        )
    return tuple(found)


def compare_splits(
    splits: Sequence[BatchLedger],
    layout: ParallelLayout,
    *,
    sequence_length: int | None = None,
    model: ModelSize | None = None,
    coalesced: bool = False,
    num_samples: int | None = None,
    training: TrainingSetup | None = None,
) -> tuple[SplitAccount, ...]:
    """The account of each split; each world is the split's data parallel size x the model parallel size of `layout`.

    `training` says what memory is estimated for, beside the stage and the sizes of the batch, which are varied; left
    out it is a TrainingSetup's defaults.

    Raises UsageError where the global batches differ, LayoutError where experts don't fit a split's world.
    """
    _require_comparable(splits)
    found = []
    for ledger in splits:
        of_split = replace(layout, world_size=ledger.data_parallel_size * layout.model_parallel_size)
        account = account_step(ledger, of_split, sequence_length=sequence_length, model=model, coalesced=coalesced)
        found.append(
            SplitAccount(
                account=account,
                memory=_memory(account, training),
                first_micro_batch=samples_of(ledger, rank=0, micro_batch=0),
                epoch=None if num_samples is None else epoch_of(ledger, num_samples),
            )
        )
    return tuple(found)


def place_of(ledger: BatchLedger, sample: int) -> Place:
    """Where sample `sample` of an epoch is computed, numbered from 0 in the order that the sampler deals it in."""
    in_rank, rank = divmod(sample, ledger.data_parallel_size)
    micro_batches, position = divmod(in_rank, ledger.micro_batch_size)
    step, micro_batch = divmod(micro_batches, ledger.gradient_accumulation_steps)
    return Place(step=step, rank=rank, micro_batch=micro_batch, position=position)


def samples_of(ledger: BatchLedger, *, rank: int, micro_batch: int, step: int = 0) -> tuple[int, ...]:
    """The samples of one micro-batch of one data-parallel rank, numbered in the order of the epoch."""
    first = (step * ledger.gradient_accumulation_steps + micro_batch) * ledger.micro_batch_size
    in_rank = range(first, first + min(ledger.micro_batch_size, _MOST_SAMPLES))
    return tuple(index * ledger.data_parallel_size + rank for index in in_rank)


_MOST_SAMPLES = 2**16
"""More than any micro-batch has."""


def _memory(account: StepAccount, training: TrainingSetup | None) -> tuple[MemoryEstimate | None, ...] | None:
    model, length = account.model, account.sequence_length
    if model is None or model.shape is None or length is None:
        return None
    has_pipeline = account.layout.pipeline_parallel_size > 1
    estimates: list[MemoryEstimate | None] = []
    for stage in account.stages:
        sizes: dict[str, Any] = {
            "zero_stage": stage.zero_stage,
            "micro_batch_size": account.ledger.micro_batch_size,
            "gradient_accumulation_steps": account.ledger.gradient_accumulation_steps,
            "sequence_length": length,
        }
        if training is None:
            of_stage = TrainingSetup(dtype=model.dtype, **sizes)
        else:
            of_stage = replace(training, **sizes, **_impossible_at(stage.zero_stage))
        is_refused = has_pipeline and stage.zero_stage > 1
        estimates.append(None if is_refused else estimate_memory(model.shape, account.layout, of_stage))
    return tuple(estimates)


def _impossible_at(zero_stage: int) -> dict[str, Any]:
    """What DeepSpeed has from a higher stage on alone, switched off."""
    off: dict[str, Any] = {}
    if zero_stage < 3:
        off["offload_parameters"] = "none"
    if zero_stage == 0:
        off |= {"offload_optimizer": "none", "grad_accum_dtype": None}
    return off


def _parse_split(word: str) -> BatchLedger:
    parts = word.strip().lower().replace("×", "x").split("x")
    if len(parts) != 3 or not all(part.strip().isascii() and part.strip().isdigit() for part in parts):
        raise UsageError(
            f"{word.strip()[:40]!r} is no split",
            remedy="write micro batch x data parallel x accumulation, as in 4x8x4,8x16x1",
        )
    if any(len(part.strip()) > _MOST_DIGITS for part in parts):
        raise UsageError(f"{word.strip()[:40]!r} is beyond any batch", remedy="give the real sizes")
    micro, ranks, accumulation = map(int, parts)
    return BatchLedger(micro_batch_size=micro, data_parallel_size=ranks, gradient_accumulation_steps=accumulation)


_MOST_DIGITS = 12


def _require_comparable(splits: Sequence[BatchLedger]) -> None:
    if not splits:
        raise UsageError("there is no split to compare", remedy="give some, as in 4x8x4,8x16x1")
    for index, split in enumerate(splits):
        if split in splits[:index]:
            raise UsageError(f"the split {_named(split)} is given twice", remedy="leave one of them out")
        if split.global_batch_size != splits[0].global_batch_size:
            raise UsageError(
                f"{_named(split)} is a global batch of {show(split.global_batch_size)} samples, and {_named(splits[0])}"
                f" of {show(splits[0].global_batch_size)}",
                remedy=_remedy(split, splits[0].global_batch_size),
            )


def _named(split: BatchLedger) -> str:
    sizes = (split.micro_batch_size, split.data_parallel_size, split.gradient_accumulation_steps)
    return "x".join(map(show, sizes))


def _remedy(split: BatchLedger, wanted: int) -> str:
    """Which number of a split alone would make it one of the wanted batch."""
    sizes = {
        "micro batch": split.micro_batch_size,
        "data parallel": split.data_parallel_size,
        "accumulation": split.gradient_accumulation_steps,
    }
    product = split.global_batch_size
    changes = [
        f"{name} to {show(wanted // (product // size))}"
        for name, size in sizes.items()
        if wanted % (product // size) == 0
    ]
    return f"set {' or '.join(changes)}" if changes else f"splits are compared at one global batch: {show(wanted)}"
