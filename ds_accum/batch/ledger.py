"""Global batch = micro batch x data parallel x accumulation; everything else is derived from these integers.

All of it is exact: what DeepSpeed would floor is an error here, with the remainder and the legal values around it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ds_accum.batch.imbalance import NAMES, Quantity, find_imbalance
from ds_accum.batch.wording import require_integer, show
from ds_accum.errors import BatchError, UsageError

__all__ = ["BatchLedger"]

# In the order of the equation.
_FIELDS: tuple[Quantity, ...] = ("micro_batch_size", "data_parallel_size", "gradient_accumulation_steps")


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchLedger:
    """The batch of one optimizer step, consistent by construction; raises BatchError if a field is no integer >= 1.

    `micro_batch_size`: samples per forward per data-parallel rank. `gradient_accumulation_steps`: micro-batches per
    optimizer step. `data_parallel_size`: groups of ranks that see different samples (`ParallelLayout` derives it).
    """

    micro_batch_size: int
    gradient_accumulation_steps: int
    data_parallel_size: int

    def __post_init__(self) -> None:
        for quantity in _FIELDS:
            require_integer(getattr(self, quantity), name=NAMES[quantity], error=BatchError)

    @classmethod
    def solve(
        cls,
        *,
        data_parallel_size: int,
        global_batch_size: int | None = None,
        micro_batch_size: int | None = None,
        gradient_accumulation_steps: int | None = None,
    ) -> BatchLedger:
        """Derive what is None from the rest as DeepSpeed does, but never by flooring.

        The cases are those of `_set_batch_related_parameters` in deepspeed/runtime/config.py (0.19.8):

        ======================  =======================================================
        given                   derived
        ======================  =======================================================
        all three               nothing; the product is checked
        global, micro           accumulation = global / (micro x data parallel)
        global, accumulation    micro = global / (data parallel x accumulation)
        global                  accumulation = 1, micro = global / data parallel
        micro, accumulation     global = micro x data parallel x accumulation
        micro                   accumulation = 1, global = micro x data parallel
        accumulation, or none   an error: the batch could be anything
        ======================  =======================================================

        Raises BatchError if a division leaves a remainder, if the product is another (both with `imbalance` set), if
        neither global nor micro batch is given, or if a value is no integer of at least 1.
        """
        given: dict[Quantity, int | None] = {
            "global_batch_size": global_batch_size,
            "micro_batch_size": micro_batch_size,
            "data_parallel_size": data_parallel_size,
            "gradient_accumulation_steps": gradient_accumulation_steps,
        }
        for quantity, value in given.items():
            if value is not None or quantity == "data_parallel_size":
                require_integer(value, name=NAMES[quantity], error=BatchError)

        if global_batch_size is None:
            if micro_batch_size is None:
                raise _underdetermined(gradient_accumulation_steps)
            return cls(
                micro_batch_size=micro_batch_size,
                gradient_accumulation_steps=gradient_accumulation_steps or 1,
                data_parallel_size=data_parallel_size,
            )

        imbalance = find_imbalance(
            global_batch_size=global_batch_size,
            data_parallel_size=data_parallel_size,
            micro_batch_size=micro_batch_size,
            gradient_accumulation_steps=gradient_accumulation_steps,
        )
        if imbalance is not None:
            raise BatchError(
                f"{imbalance.describe()}; {imbalance.describe_legal()}",
                remedy=imbalance.describe_remedy(),
                imbalance=imbalance,
            )
        # Without an imbalance both divisions below are exact.
        if micro_batch_size is None:
            gradient_accumulation_steps = gradient_accumulation_steps or 1
            micro_batch_size = global_batch_size // (data_parallel_size * gradient_accumulation_steps)
        elif gradient_accumulation_steps is None:
            gradient_accumulation_steps = global_batch_size // (micro_batch_size * data_parallel_size)
        return cls(
            micro_batch_size=micro_batch_size,
            gradient_accumulation_steps=gradient_accumulation_steps,
            data_parallel_size=data_parallel_size,
        )

    @property
    def global_batch_size(self) -> int:
        """Samples per optimizer step, over all ranks."""
        return self.micro_batch_size * self.data_parallel_size * self.gradient_accumulation_steps

    def tokens_per_step(self, *, sequence_length: int) -> int:
        """Token positions per optimizer step, padding and uncounted labels included: global batch x sequence length.

        `sequence_length` is the whole length in tokens, before context or sequence parallel splits it.
        """
        require_integer(sequence_length, name="sequence length", error=UsageError)
        return self.global_batch_size * sequence_length

    def synchronizations_per_step(self, *, reduce_at_boundary: bool) -> int:
        """How often an optimizer step reduces each gradient over the data-parallel ranks.

        0 at data parallel 1, where there is nobody to reduce with; 1 where the reduction waits for the accumulation
        boundary (DeepSpeed's ZeRO 0 and 1); accumulation steps where every micro-batch reduces (ZeRO 2 and 3, which
        keep only a shard of each gradient). Context- and sequence-parallel ranks that join the same reduction are not
        counted: with them gradients are reduced even at data parallel 1.
        """
        if self.data_parallel_size == 1:
            return 0
        return 1 if reduce_at_boundary else self.gradient_accumulation_steps

    def micro_batches_per_epoch(self, num_samples: int, *, drop_last: bool = False) -> int:
        """Micro-batches that each data-parallel rank sees in one pass over `num_samples` samples.

            samples per rank = ceil(num_samples / data parallel)
            micro-batches    = ceil(samples per rank / micro batch)     floor with `drop_last`

        This is DeepSpeed's own data loader: torch's DistributedSampler deals every rank the same number of samples,
        repeating up to data parallel - 1 of them, and `drop_last` (DeepSpeed's `dataloader_drop_last`, off unless set)
        leaves out a last micro-batch that is not full. Raises UsageError if `num_samples` is no integer of at least 0.
        """
        require_integer(num_samples, name="number of samples", minimum=0, error=UsageError)
        samples_per_rank = _ceil_divide(num_samples, self.data_parallel_size)
        if drop_last:
            return samples_per_rank // self.micro_batch_size
        return _ceil_divide(samples_per_rank, self.micro_batch_size)

    def steps_per_epoch(self, num_samples: int, *, incomplete_window: bool, drop_last: bool = False) -> int:
        """Optimizer steps in one pass over `num_samples` samples that starts with an empty accumulation window.

            steps = floor(micro-batches per epoch / accumulation)       ceil with `incomplete_window`

        The incomplete window is what the epoch leaves over: fewer micro-batches than accumulation steps. With
        `incomplete_window` they get an optimizer step of their own; without, they get none in this epoch. Stock
        DeepSpeed does neither drop nor step them: they stay in the window, and the next epoch completes it, so that
        there n epochs take floor(n x micro-batches per epoch / accumulation) steps.

        A short last *micro-batch* is another matter: see `micro_batches_per_epoch`, also for the errors raised.
        """
        micro_batches = self.micro_batches_per_epoch(num_samples, drop_last=drop_last)
        if incomplete_window:
            return _ceil_divide(micro_batches, self.gradient_accumulation_steps)
        return micro_batches // self.gradient_accumulation_steps

    def describe(self) -> str:
        """The equation: "global batch 64 = micro batch 4 x data parallel 8 x accumulation 2"."""
        said = " x ".join(f"{NAMES[quantity]} {show(getattr(self, quantity))}" for quantity in _FIELDS)
        return f"global batch {show(self.global_batch_size)} = {said}"


def _ceil_divide(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def _underdetermined(gradient_accumulation_steps: int | None) -> BatchError:
    message = "neither global batch nor micro batch is given"
    if gradient_accumulation_steps is not None:
        message += f", and accumulation {show(gradient_accumulation_steps)} alone determines neither"
    return BatchError(message, remedy="give the global batch, the micro batch, or both")
