"""`ds-accum ledger`: only the shell; the account is `ds_accum.plan.account`, what it is read from `ledger_inputs`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ds_accum.cli.ledger_options import ledger_options
from ds_accum.cli.report_options import ReportOptions, report_options
from ds_accum.cli.sections import SectionedCommand
from ds_accum.errors import UsageError

if TYPE_CHECKING:
    from fractions import Fraction

    from ds_accum.batch import BatchLedger, ParallelLayout
    from ds_accum.cli.ledger_inputs import ConfigFacts
    from ds_accum.plan.account import ModelSize
    from ds_accum.plan.experts import ExpertAccount
    from ds_accum.plan.length import Epoch, TrainingLength, Warmup
    from ds_accum.plan.splits import SplitAccount
    from ds_accum.plan.training import TrainingSetup

__all__ = ["ledger"]


@click.command(cls=SectionedCommand, short_help="Account for one optimizer step: samples, tokens, bytes, steps.")
@click.argument("config", required=False, type=click.Path(path_type=Path))
@ledger_options
@report_options
def ledger(config: Path | None, report: ReportOptions, **options: Any) -> None:
    """Account for one optimizer step: samples, tokens, bytes, steps.

    It says what each ZeRO stage synchronizes and sends, by what formula, and how long a training is in optimizer steps.
    CONFIG is a DeepSpeed config; options count in place of what it says, and are enough without one.

    \b
      ds-accum ledger ds_config.json --world-size 64 --seq-len 4096
      ds-accum ledger --vary 4x8x4,8x16x1 --parameters 7B
      ds-accum ledger --micro-batch 1 --world-size 8 --tp 8 --model llama-2-70b
      ds-accum ledger ds_config.json --world-size 8 --samples 52000 --epochs 3
      ds-accum ledger ds_config.json --world-size 8 --seq-len 2048 --tokens 300B
      ds-accum ledger ds_config.json --world-size 8 --seq-len 2048 --experts 64
    """
    from ds_accum.cli.ledger_inputs import facts_of, launch_of, layout_and_ledger, read_config, scheduler_notes
    from ds_accum.plan.account import account_step
    from ds_accum.plan.reports.ledger import ledger_document, ledger_json

    launch = launch_of(options)
    values, filled_in = read_config(config, launch) if config is not None else ({}, frozenset())
    if config is None:
        options = _from_first_split(options)
    layout, batch = layout_and_ledger(values, filled_in, launch, options)
    facts = facts_of(values, launch)
    model = _model(options, facts)
    coalesced = options["coalesced"] or facts.coalesced
    sequence_length = options["sequence_length"]
    account = account_step(batch, layout, sequence_length=sequence_length, model=model, coalesced=coalesced)
    training = None
    if options["vary"] is not None and model is not None and model.shape is not None and sequence_length is not None:
        from ds_accum.cli.memory_inputs import training_over_stages

        training = training_over_stages(values, launch, layout, batch, options)
    epoch, length = _length(options, batch)
    notes = []
    if facts.scheduler is not None and length is not None:
        notes = scheduler_notes(facts.scheduler, length.total_steps, length.micro_batches, length.warmup_steps)
    result: dict[str, Any] = {
        "zero_stage": facts.zero_stage,
        "epoch": epoch,
        "length": length,
        "splits": _splits(options, batch, layout, model, coalesced=coalesced, training=training),
        "experts": _experts(options, batch, layout, model),
        "notes": notes,
    }
    report.write(lambda: ledger_document(account, **result), lambda: ledger_json(account, **result))


def _from_first_split(options: dict[str, Any]) -> dict[str, Any]:
    """Where splits are all that is said about the batch, the first of them is the batch."""
    sizes = ("micro_batch_size", "gradient_accumulation_steps", "global_batch_size", "data_parallel_size")
    worlds = ("world_size", "nodes", "gpus_per_node", "hostfile")
    if options["vary"] in (None, "all", "any") or any(options[name] is not None for name in (*sizes, *worlds)):
        return options
    from ds_accum.plan.splits import parse_splits

    first = parse_splits(options["vary"])[0]
    return {
        **options,
        "micro_batch_size": first.micro_batch_size,
        "gradient_accumulation_steps": first.gradient_accumulation_steps,
        "data_parallel_size": first.data_parallel_size,
    }


def _model(options: Mapping[str, Any], facts: ConfigFacts) -> ModelSize | None:
    from ds_accum.plan.account import ModelSize

    name, parameters = options["model"], options["parameters"]
    if name is not None and parameters is not None:
        raise UsageError("--model says how many parameters there are", remedy="leave --parameters out")
    facts_of_model: dict[str, Any] = {
        "dtype": options["dtype"] or facts.dtype or "bf16",
        "gradient_dtype": facts.gradient_dtype,
    }
    if facts.max_live_parameters is not None:
        facts_of_model["max_live_parameters"] = facts.max_live_parameters
    if name is not None:
        from ds_accum.plan.shapes import read_shape

        return ModelSize.of(read_shape(name), **facts_of_model)
    if parameters is not None:
        return ModelSize(parameters=parameters, **facts_of_model)
    return None


def _length(options: Mapping[str, Any], batch: BatchLedger) -> tuple[Epoch | None, TrainingLength | None]:
    """An epoch if its samples are given, and the length if anything says it."""
    from ds_accum.plan.length import epoch_of, training_length

    samples, tokens, steps = options["num_samples"], options["token_budget"], options["total_steps"]
    for given, name in ((options["epochs"], "--epochs"), (options["drop_last"] or None, "--drop-last")):
        if given is not None and samples is None:
            raise UsageError(f"{name} says nothing without --samples", remedy="add --samples")
    if tokens is not None and steps is not None:
        raise UsageError("--tokens and --steps both say how long the training is", remedy="give only one of them")
    if options["epochs"] is not None and (tokens is not None or steps is not None):
        other = "--tokens" if tokens is not None else "--steps"
        raise UsageError(f"--epochs and {other} both say how long the training is", remedy="give only one of them")
    warmup = _warmup(options)
    epoch = None if samples is None else epoch_of(batch, samples, drop_last=options["drop_last"])
    if tokens is None and steps is None and epoch is None:
        if warmup is not None:
            raise UsageError("a warmup is a part of a training", remedy="add --tokens, --steps, or --samples")
        return None, None
    length = training_length(
        batch,
        sequence_length=options["sequence_length"],
        total_steps=steps,
        token_budget=tokens,
        epoch=epoch if tokens is None and steps is None else None,
        epochs=options["epochs"] or 1,
        warmup=warmup,
    )
    return epoch, length


def _warmup(options: Mapping[str, Any]) -> Warmup | None:
    from ds_accum.plan.length import Warmup
    from ds_accum.plan.quantities import read_ratio

    given = {unit: options[f"warmup_{unit}"] for unit in ("steps", "samples", "tokens", "ratio")}
    if all(value is None for value in given.values()):
        return None
    if given["ratio"] is not None:
        given["ratio"] = read_ratio(given["ratio"], name="--warmup-ratio", most=1)
    return Warmup(**given)


def _splits(
    options: Mapping[str, Any],
    batch: BatchLedger,
    layout: ParallelLayout,
    model: ModelSize | None,
    *,
    coalesced: bool,
    training: TrainingSetup | None,
) -> tuple[SplitAccount, ...]:
    asked = options["vary"]
    if asked is None:
        return ()
    from ds_accum.plan.splits import all_splits, compare_splits, parse_splits

    if asked in ("all", "any"):
        ranks = batch.data_parallel_size if asked == "all" else None
        splits = all_splits(batch.global_batch_size, data_parallel_size=ranks)
    else:
        splits = parse_splits(asked)
        if batch not in splits:
            splits = (batch, *splits)
    return compare_splits(
        splits,
        layout,
        sequence_length=options["sequence_length"],
        model=model,
        coalesced=coalesced,
        num_samples=options["num_samples"],
        training=training,
    )


def _experts(
    options: Mapping[str, Any], batch: BatchLedger, layout: ParallelLayout, model: ModelSize | None
) -> ExpertAccount | None:
    """Of the experts that are given, or that the model has."""
    of_model = None if model is None or model.shape is None else model.shape.experts
    experts, per_token = options["num_experts"], options["experts_per_token"]
    if experts is not None and of_model is not None and experts != of_model.num_experts:
        raise UsageError(
            f"--experts {experts} contradicts --model with {of_model.num_experts}", remedy="leave --experts out"
        )
    if experts is None and of_model is not None:
        experts, per_token = of_model.num_experts, per_token or of_model.experts_per_token
    asked = {"--top-k": per_token, "--routing": options["routing"], "--max-spread": options["max_spread"]}
    if experts is None:
        for name, value in asked.items():
            if value is not None:
                raise UsageError(f"{name} says nothing without --experts", remedy="add --experts")
        return None
    if options["sequence_length"] is None:
        if options["num_experts"] is None and not any((options["routing"], options["max_spread"])):
            return None
        raise UsageError("the tokens of an expert need a sequence length", remedy="add --seq-len")
    from ds_accum.plan.experts import account_experts, parse_routing
    from ds_accum.plan.quantities import read_ratio

    max_spread: Fraction | None = None
    if options["max_spread"] is not None:
        max_spread = read_ratio(options["max_spread"], name="--max-spread")
    return account_experts(
        parse_routing(options["routing"] or "uniform", num_experts=experts, experts_per_token=per_token or 1),
        batch,
        layout,
        sequence_length=options["sequence_length"],
        max_spread=max_spread,
    )
