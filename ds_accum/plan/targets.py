"""The samples of an optimizer step that a target asks for, or the nearest targets that the layouts can meet exactly.

global batch = tokens a step / sequence length             a whole number, or there is no such batch
global batch = micro batch x data parallel x accumulation  for a data parallel size of some layout

resolve_target(tokens_per_step=4_000_000, sequence_length=4096, data_parallel_sizes={8, 16, 64})
    BatchError: 4000000 tokens a step are no multiple of the sequence length 4096 (remainder 2304)
    remedy: ... 3997696 = 976 x 4096 ... or 4001792 ...
"""

from __future__ import annotations

from collections.abc import Collection

from ds_accum.batch.divisibility import find_indivisible
from ds_accum.batch.wording import require_integer, show, show_list, show_values
from ds_accum.errors import BatchError, UsageError

__all__ = ["MOST_SAMPLES", "nearest_batches", "resolve_target"]

MOST_SAMPLES = 2**28 - 1
"""Up to here every divisor is found in about a millisecond (`ds_accum.batch.divisibility`)."""


def resolve_target(
    *,
    sequence_length: int,
    data_parallel_sizes: Collection[int],
    global_batch_size: int | None = None,
    tokens_per_step: int | None = None,
) -> int:
    """The global batch size. `data_parallel_sizes` are those of all legal layouts, at least one.

    Raises BatchError where no layout meets the target exactly, UsageError where not just one of the two is given.
    """
    if (global_batch_size is None) == (tokens_per_step is None):
        raise UsageError(
            "the target is given in samples or in tokens, and just one of them",
            remedy="give the global batch size or the tokens per step",
        )
    require_integer(sequence_length, name="sequence length", error=UsageError)
    largest = max(data_parallel_sizes)
    if tokens_per_step is not None:
        require_integer(tokens_per_step, name="tokens per step", error=UsageError)
        uneven = find_indivisible(tokens_per_step, sequence_length)
        if uneven is not None:
            raise BatchError(
                f"{show(tokens_per_step)} tokens a step are no multiple of the sequence length {show(sequence_length)}"
                f" (remainder {show(uneven.remainder)})",
                remedy=_nearest_tokens(tokens_per_step, sequence_length, data_parallel_sizes),
            )
        global_batch_size = tokens_per_step // sequence_length
    assert global_batch_size is not None
    require_integer(global_batch_size, name="global batch size", error=UsageError)
    if global_batch_size > MOST_SAMPLES:
        raise UsageError(
            f"a step of {show(global_batch_size)} samples is more than {MOST_SAMPLES}",
            remedy="give the samples of one optimizer step",
        )
    if all(global_batch_size % size for size in data_parallel_sizes):
        sizes = sorted(data_parallel_sizes)
        below, above = nearest_batches(global_batch_size, data_parallel_sizes)
        if len(sizes) == 1:
            said = f"data parallel {sizes[0]}, that of every legal layout"
        else:
            said = f"any data parallel size of a legal layout, {sizes[0]} to {largest}"
        near = [value for value in (below, above) if value is not None]
        raise BatchError(
            f"global batch {show(global_batch_size)} is not a multiple of {said}",
            remedy=f"use a global batch of {show_values(near)}, other GPUs, or other limits of the layout",
        )
    return global_batch_size


def nearest_batches(global_batch_size: int, data_parallel_sizes: Collection[int]) -> tuple[int | None, int]:
    """The largest batch below and the smallest above that some of these sizes divide; None where there is none."""
    below = max((global_batch_size - 1) // size * size for size in data_parallel_sizes)
    above = min((global_batch_size // size + 1) * size for size in data_parallel_sizes)
    return below or None, above


def _nearest_tokens(tokens: int, sequence_length: int, sizes: Collection[int]) -> str:
    """The nearest batches in tokens that some layout meets, and those that the widest data parallelism does."""
    largest = max(sizes)
    whole = tokens // sequence_length
    just = _samples(_batches_around(whole, sizes), sequence_length)
    said = f"the nearest that a layout meets: {show_list(just)}"
    wide = _samples(_batches_around(whole, (largest,)), sequence_length)
    return said if wide == just else f"{said}; with data parallel {largest}: {show_list(wide)}"


def _batches_around(whole: int, sizes: Collection[int]) -> list[int]:
    """The batches around a target between `whole` and `whole` + 1 samples."""
    below = max(whole // size * size for size in sizes)
    above = min((whole // size + 1) * size for size in sizes)
    return [value for value in (below, above) if value]


def _samples(batches: list[int], sequence_length: int) -> list[str]:
    return [
        f"{show(batch * sequence_length)} ({'1 sample' if batch == 1 else f'{show(batch)} samples'})"
        for batch in batches
    ]
