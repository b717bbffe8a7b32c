"""The account of one optimizer step as a document: the batch, what each ZeRO stage exchanges for it, and the length.

`ledger_document` has the sections for splits and experts too, where they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ds_accum.plan.account import StageAccount, StepAccount
from ds_accum.plan.communication import Transfer, rank_share, replica_size
from ds_accum.plan.experts import ExpertAccount
from ds_accum.plan.length import Epoch, TrainingLength
from ds_accum.plan.reports.exact import digits, times
from ds_accum.plan.reports.experts import expert_json, expert_section
from ds_accum.plan.reports.splits import split_json, split_sections
from ds_accum.plan.splits import SplitAccount
from ds_accum.reporting import Document, Section, Table, bytes_text, plain

__all__ = ["ledger_document", "ledger_json"]


def ledger_document(
    account: StepAccount,
    *,
    zero_stage: int | None = None,
    epoch: Epoch | None = None,
    length: TrainingLength | None = None,
    splits: Sequence[SplitAccount] = (),
    experts: ExpertAccount | None = None,
    notes: Sequence[str] = (),
) -> Document:
    """The whole report; `zero_stage` is the one that a config chooses, `notes` are what the reader should know."""
    # What was asked for first.
    sections = split_sections(splits) if splits else []
    sections += [_batch(account), _stages(account, zero_stage)]
    if account.model is not None:
        sections += _formulas(account)
    if account.layer_transfers:
        sections.append(_layers(account))
    if epoch is not None or length is not None:
        sections.append(_length(account, epoch, length))
    sections += [expert_section(experts)] if experts is not None else []
    return Document(
        title="The account of one optimizer step",
        lead=tuple(_lead(account, zero_stage, notes)),
        sections=tuple(sections),
    )


def ledger_json(
    account: StepAccount,
    *,
    zero_stage: int | None = None,
    epoch: Epoch | None = None,
    length: TrainingLength | None = None,
    splits: Sequence[SplitAccount] = (),
    experts: ExpertAccount | None = None,
    notes: Sequence[str] = (),
) -> Mapping[str, object]:
    """The same for a program: every number, bytes as whole numbers."""
    value: dict[str, Any] = {
        "version": 1,
        "ledger": {**plain(account.ledger), "global_batch_size": account.ledger.global_batch_size},
        "layout": {**plain(account.layout), "replica_size": replica_size(account.layout)},
        "sequence_length": account.sequence_length,
        "tokens_per_step": account.tokens_per_step,
        "micro_batches_per_pipeline_stage": account.micro_batches_per_pipeline_stage,
        "parameters": None if account.model is None else account.model.parameters,
        "zero_stage": zero_stage,
        "pipeline_stage": account.pipeline_stage,
        "stages": [
            {
                **plain(stage),
                "transfers": [_transfer_json(transfer) for transfer in stage.transfers],
                "passed_bytes": stage.passed_bytes if account.model else None,
                "sent_bytes": stage.sent_bytes if account.model else None,
            }
            for stage in account.stages
        ],
        "layer_transfers": [_transfer_json(transfer) for transfer in account.layer_transfers],
        "epoch": plain(epoch),
        "length": plain(length),
        "splits": [split_json(split) for split in splits],
        "experts": None if experts is None else expert_json(experts),
        "notes": list(notes),
    }
    return value


def _transfer_json(transfer: Transfer) -> dict[str, Any]:
    return {**plain(transfer), "passed_bytes": transfer.passed_bytes, "sent_bytes": transfer.sent_bytes}


def _lead(account: StepAccount, zero_stage: int | None, notes: Sequence[str]) -> Iterable[str]:
    yield account.ledger.describe()
    if account.layout.model_parallel_size > 1 or account.layout.expert_parallel_size > 1:
        yield account.layout.describe()
    tokens = account.tokens_per_step
    if tokens is not None:
        batch, length = account.ledger.global_batch_size, account.sequence_length
        yield f"{digits(batch)} samples x {digits(length or 0)} = {digits(tokens)} tokens a step"
    if zero_stage is not None:
        yield f"ZeRO stage {zero_stage} {_said(account.stages[zero_stage], account)}"
        if zero_stage > 1 and account.layout.pipeline_parallel_size > 1:
            yield f"DeepSpeed's pipeline engine refuses ZeRO stage {zero_stage}: this would not start"
    yield from notes


def _said(stage: StageAccount, account: StepAccount) -> str:
    said = f"synchronizes gradients {times(stage.synchronizations)} a step"
    if stage.parameter_gathers:
        said += f" and gathers parameters {times(stage.parameter_gathers)}"
    return f"{said}: {bytes_text(stage.sent_bytes)} sent by a rank for them" if account.model else said


def _batch(account: StepAccount) -> Section:
    ledger = account.ledger
    rows = [
        ("micro batch", digits(ledger.micro_batch_size), "samples of one forward on one rank"),
        (
            "data parallel",
            digits(ledger.data_parallel_size),
            account.layout.describe().split(" = data")[0].split(";")[0],
        ),
        ("accumulation", digits(ledger.gradient_accumulation_steps), "micro-batches of one optimizer step"),
        ("global batch", digits(ledger.global_batch_size), "micro batch x data parallel x accumulation"),
    ]
    if account.tokens_per_step is not None:
        of_micro = ledger.micro_batch_size * (account.sequence_length or 0)
        rows.append(("tokens of a micro-batch", digits(of_micro), "micro batch x sequence length"))
        rows.append(("tokens of a step", digits(account.tokens_per_step), "global batch x sequence length"))
    stages = account.layout.pipeline_parallel_size
    per_stage = digits(account.micro_batches_per_pipeline_stage)
    said = "= accumulation: they fill the pipeline and multiply nothing" if stages > 1 else "= accumulation"
    rows.append(("micro-batches of a pipeline stage", per_stage, said))
    ranks = replica_size(account.layout)
    if ranks != ledger.data_parallel_size:
        said = "data x context x sequence parallel: they reduce gradients together"
        rows.append(("ranks with the same parameters", digits(ranks), said))
    return Section(
        title="Batch",
        table=Table(headings=("", "number", "what it is"), rows=tuple(rows), words=frozenset({0, 2})),
    )


def _stages(account: StepAccount, zero_stage: int | None) -> Section:
    rows = []
    for stage in account.stages:
        chosen = " (chosen)" if stage.zero_stage == zero_stage else ""
        when = "at the boundary" if stage.reduces_at_boundary else "in every micro-batch"
        row = [f"{stage.zero_stage}{chosen}", when if stage.synchronizations else "never"]
        row += [digits(stage.synchronizations), digits(stage.parameter_gathers)]
        if account.model is not None:
            row += [bytes_text(stage.passed_bytes), bytes_text(stage.sent_bytes)]
        rows.append(tuple(row))
    headings: tuple[str, ...] = ("stage", "gradients reduced", "synchronizations", "gathers")
    if account.model is not None:
        headings = (*headings, "passed", "sent")
    return Section(
        title="What each ZeRO stage exchanges in a step",
        paragraphs=tuple(_about_stages(account)),
        table=Table(headings=headings, rows=tuple(rows), words=frozenset({0, 1})),
    )


def _about_stages(account: StepAccount) -> Iterable[str]:
    ranks = replica_size(account.layout)
    if ranks == 1:
        yield "One rank holds these parameters alone, so that nothing is synchronized."
        return
    if account.ledger.data_parallel_size == 1:
        yield (
            f"Data parallel is 1, but the {digits(ranks)} context and sequence parallel ranks hold the same parameters"
            " and reduce their gradients."
        )
    if account.layout.pipeline_parallel_size > 1:
        yield "DeepSpeed's pipeline engine refuses the stages 2 and 3."
    if account.model is None:
        yield "Give the model or its parameters to see bytes."


def _formulas(account: StepAccount) -> list[Section]:
    rows = []
    sources = []
    for stage in account.stages:
        for transfer in stage.transfers:
            rows.append(_row(f"{stage.zero_stage} {transfer.name}", transfer))
            sources.append(transfer.source)
    if not rows:
        return []
    table = _transfers_table("stage and what", tuple(rows), sources)
    return [Section(title="By what formula", paragraphs=tuple(_legend(account)), table=table)]


def _legend(account: StepAccount) -> Iterable[str]:
    model, held = account.model, account.rank_parameters
    ranks = replica_size(account.layout)
    if model is None or held is None:
        return
    parameters, experts = held
    yield (
        f"P = {digits(parameters)} parameters that a rank has before ZeRO shards them, N = {digits(ranks)} ranks that"
        f" have the same, A = {digits(account.ledger.gradient_accumulation_steps)} micro-batches,"
        f" e = {model.parameter_bytes} bytes a parameter, g = {model.gradient_bytes(account.layout)} a gradient."
    )
    if experts:
        copies = digits(account.layout.expert_data_parallel_size)
        yield f"Of the experts a rank has P = {digits(experts)} more, and N = {copies}."
    yield (
        "In a ring a rank sends 2 (N-1)/N of what it passes to an all-reduce, (N-1)/N of a reduce-scatter or an"
        " all-to-all, and N-1 times what it passes to an all-gather."
    )
    gathers = [transfer for transfer in account.stages[3].transfers if transfer.name == "parameters"]
    if gathers and gathers[0].times > account.ledger.gradient_accumulation_steps:
        yield (
            "ZeRO-3 gathers for forward and backward where what a rank has does not fit in stage3_max_live_parameters,"
            f" here {digits(model.max_live_parameters)}. It keeps a part all the same: 2 A is the most that it can be."
        )
    if account.layout.pipeline_parallel_size > 1:
        yield f"The rank is one of pipeline stage {account.pipeline_stage}, from 0, which sends most."


def _layers(account: StepAccount) -> Section:
    rows = tuple(_row(transfer.name, transfer) for transfer in account.layer_transfers)
    tokens = account.ledger.micro_batch_size * (account.sequence_length or 0)
    tokens //= account.layout.context_parallel_size * account.layout.sequence_parallel_size
    shape = account.model.shape if account.model is not None else None
    assert shape is not None
    share = rank_share(shape, account.layout, account.pipeline_stage)
    layers = f"L = {share.num_layers} layers of the rank"
    if share.num_expert_layers:
        layers += (
            f" (of experts {share.num_expert_layers}, k = {shape.experts.experts_per_token if shape.experts else 0})"
        )
    return Section(
        title="What the layers exchange in a step, under any ZeRO stage",
        paragraphs=(
            f"T = {digits(tokens)} tokens of a micro-batch on a rank, {layers}, h = {digits(shape.hidden_size)}.",
        ),
        table=_transfers_table("what", rows, [transfer.source for transfer in account.layer_transfers]),
    )


def _row(name: str, transfer: Transfer) -> tuple[str, ...]:
    return (
        name,
        f"{transfer.kind} of {transfer.ranks}",
        transfer.formula,
        digits(transfer.times),
        bytes_text(transfer.bytes_each),
        bytes_text(transfer.sent_bytes),
    )


def _transfers_table(name: str, rows: tuple[tuple[str, ...], ...], sources: Iterable[str]) -> Table:
    return Table(
        headings=(name, "collective", "formula", "calls", "a call", "sent"),
        rows=rows,
        words=frozenset({0, 1, 2}),
        note=f"Sources: {'; '.join(dict.fromkeys(sources))}.",
    )


def _length(account: StepAccount, epoch: Epoch | None, length: TrainingLength | None) -> Section:
    rows = []
    ledger = account.ledger
    if epoch is not None:
        said = f"of each rank, from {digits(epoch.num_samples)} samples"
        rows.append(("micro-batches an epoch", digits(epoch.micro_batches), said))
        rows.append(("optimizer steps an epoch", digits(epoch.steps), "full windows"))
        if epoch.left_over_micro_batches:
            said = "stay in the window: the next epoch completes it"
            rows.append(("micro-batches left over", digits(epoch.left_over_micro_batches), said))
        if epoch.repeated_samples:
            said = "so that every data-parallel rank gets as many"
            rows.append(("samples dealt twice", digits(epoch.repeated_samples), said))
    paragraphs = []
    if length is not None:
        rows.append(("total_num_steps", digits(length.total_steps), length.formula))
        rows.append(("samples in all", digits(length.total_samples), "steps x global batch"))
        if length.total_tokens is not None:
            rows.append(("tokens in all", digits(length.total_tokens), "steps x tokens of a step"))
        if length.warmup_steps is not None:
            rows.append(("warmup_num_steps", digits(length.warmup_steps), length.warmup_formula))
        if ledger.gradient_accumulation_steps > 1:
            paragraphs.append(
                "Schedulers count optimizer steps: DeepSpeed steps them at the accumulation boundary. Counted in"
                f" micro-batches the length would be {digits(length.micro_batches)},"
                f" {digits(ledger.gradient_accumulation_steps)} times too long."
            )
    return Section(
        title="Length",
        paragraphs=tuple(paragraphs),
        table=Table(headings=("", "number", "how it comes about"), rows=tuple(rows), words=frozenset({0, 2})),
    )
