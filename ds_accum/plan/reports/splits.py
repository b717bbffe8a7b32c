"""Splits of one global batch as sections: what is equal between them, and what is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ds_accum.plan.reports.exact import counted, digits
from ds_accum.plan.reports.plan_words import training_words
from ds_accum.plan.splits import SplitAccount, place_of
from ds_accum.reporting import Section, Table, bytes_text, plain

__all__ = ["split_json", "split_sections"]


def split_sections(splits: Sequence[SplitAccount]) -> list[Section]:
    """What is equal, what differs, and bytes and memory where enough is known of the model."""
    sections = [_equal(splits), _different(splits)]
    if all(split.account.model is not None for split in splits):
        sections.append(_bytes(splits))
    if all(split.memory is not None for split in splits):
        sections.append(_memory(splits))
    return sections


def split_json(split: SplitAccount) -> dict[str, Any]:
    """One split for a program."""
    account = split.account
    return {
        "ledger": {**plain(split.ledger), "global_batch_size": split.ledger.global_batch_size},
        "world_size": account.layout.world_size,
        "tokens_per_step": account.tokens_per_step,
        "normalized_together": split.normalized_together,
        "normalized_together_synchronized": split.normalized_together_synchronized,
        "first_micro_batch": list(split.first_micro_batch),
        "stages": [
            {
                "zero_stage": stage.zero_stage,
                "synchronizations": stage.synchronizations,
                "parameter_gathers": stage.parameter_gathers,
                "sent_bytes": stage.sent_bytes if account.model else None,
                "peak_bytes": _peak_bytes(split, stage.zero_stage),
            }
            for stage in account.stages
        ],
        "epoch": plain(split.epoch),
    }


def _equal(splits: Sequence[SplitAccount]) -> Section:
    account = splits[0].account
    said = f"Every optimizer step takes the same {digits(splits[0].ledger.global_batch_size)} samples"
    if account.tokens_per_step is not None:
        said += f", {digits(account.tokens_per_step)} tokens"
    said += (
        ", in the same step of an epoch with the same sampler and seed: optimizer steps, learning rate, samples seen"
        " agree. The mean gradient does too, but for rounding, where every micro-batch counts as many tokens; else only"
        " a token-weighted engine gives one gradient for all splits (`ds_accum.initialize`)."
    )
    return Section(title="What is equal between the splits", paragraphs=(said,))


def _different(splits: Sequence[SplitAccount]) -> Section:
    rows = []
    for split in splits:
        stages = split.account.stages
        counts = [str(stage.synchronizations) for stage in stages]
        rows.append(
            (
                split_name(split),
                digits(split.account.layout.world_size),
                "/".join(counts),
                digits(stages[3].parameter_gathers),
                f"{digits(split.normalized_together)} ({digits(split.normalized_together_synchronized)})",
                _first(split),
            )
        )
    headings = ("split", "ranks", "synchronizations", "gathers", "BatchNorm", "first samples of rank 0")
    return Section(
        title="What is not",
        paragraphs=tuple(_about_differences(splits)),
        table=Table(headings=headings, rows=tuple(rows), words=frozenset({0, 5}), note=_NOTE),
    )


_NOTE = (
    "split: micro batch x data parallel x accumulation; synchronizations: of gradients a step, ZeRO 0/1/2/3; gathers:"
    " of parameters a step, ZeRO-3; BatchNorm: samples that its statistics are taken over on one rank, in brackets"
    " SyncBatchNorm over data parallel; first samples: those of a step that data-parallel rank 0 computes together"
    " first, numbered in the order of the epoch."
)


def _about_differences(splits: Sequence[SplitAccount]) -> Iterator[str]:
    first = splits[0]
    sample = min(first.ledger.global_batch_size, first.ledger.data_parallel_size + 1) - 1
    places = {place_of(split.ledger, sample) for split in splits}
    if len(places) > 1:
        said = []
        for split in splits[:3]:
            place = place_of(split.ledger, sample)
            said.append(f"rank {place.rank}, micro-batch {place.micro_batch} of {split_name(split)}")
        yield f"Samples move: sample {sample} of a step, from 0, is in {'; '.join(said)}."
    epochs = [(split, split.epoch) for split in splits if split.epoch is not None]
    if len({(epoch.steps, epoch.left_over_micro_batches, epoch.repeated_samples) for _, epoch in epochs}) > 1:
        said = [
            f"{counted(epoch.steps, 'step')}, {counted(epoch.left_over_micro_batches, 'micro-batch')} left over and"
            f" {counted(epoch.repeated_samples, 'sample')} dealt twice in {split_name(split)}"
            for split, epoch in epochs[:4]
        ]
        yield f"The end of an epoch differs: {'; '.join(said)}."


def _first(split: SplitAccount) -> str:
    samples = split.first_micro_batch
    if len(samples) <= 4:
        return ", ".join(map(digits, samples))
    last = split.ledger.data_parallel_size * (split.ledger.micro_batch_size - 1)
    return f"{', '.join(map(digits, samples[:3]))}, ... {digits(last)}"


def _bytes(splits: Sequence[SplitAccount]) -> Section:
    rows = tuple(
        (split_name(split), *(bytes_text(stage.sent_bytes) for stage in split.account.stages)) for split in splits
    )
    return Section(
        title="Bytes that a rank sends in a step for gradients and parameters",
        table=Table(headings=("split", *_STAGES), rows=rows),
    )


def _memory(splits: Sequence[SplitAccount]) -> Section:
    rows = tuple(
        (
            split_name(split),
            *(
                "refused" if peak is None else bytes_text(peak)
                for peak in (_peak_bytes(split, stage) for stage in range(4))
            ),
        )
        for split in splits
    )
    return Section(
        title="Memory of a rank at its fullest moment",
        table=Table(headings=("split", *_STAGES), rows=rows, note=_about_memory(splits)),
    )


def _peak_bytes(split: SplitAccount, zero_stage: int) -> int | None:
    estimate = None if split.memory is None else split.memory[zero_stage]
    return None if estimate is None else estimate.peak_bytes


_STAGES = tuple(f"ZeRO-{stage}" for stage in range(4))


def _about_memory(splits: Sequence[SplitAccount]) -> str:
    said = (
        "Activations grow with the micro-batch; more data-parallel ranks shard finer; accumulation above 1 keeps"
        " gradients between micro-batches."
    )
    assumed = [memory.training for split in splits for memory in split.memory or () if memory is not None]
    if not assumed:
        return said
    training = max(assumed, key=lambda training: training.zero_stage)
    recompute = f"{training.recompute.replace('none', 'no')} recompute"
    places = [
        f"{what} offloaded to {place} where the stage can"
        for what, place in (("states", training.offload_optimizer), ("parameters", training.offload_parameters))
        if place != "none"
    ]
    said += f" Assumed: {', '.join((training_words(training), recompute, *(places or ['no offload'])))}."
    if training.accumulation_dtype != training.dtype:
        said += f" ZeRO-0 adds up in {training.dtype}."
    return said


def split_name(split: SplitAccount) -> str:
    """4x8x4."""
    ledger = split.ledger
    sizes = (ledger.micro_batch_size, ledger.data_parallel_size, ledger.gradient_accumulation_steps)
    return "x".join(str(size) for size in sizes)
