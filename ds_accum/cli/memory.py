"""`ds-accum memory`: only the shell; the estimate is `ds_accum.plan.memory`, what it is read from `memory_inputs`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ds_accum.cli.memory_options import memory_options
from ds_accum.cli.report_options import ReportOptions, report_options
from ds_accum.cli.sections import SectionedCommand
from ds_accum.errors import UsageError

__all__ = ["DOES_NOT_FIT", "memory"]

DOES_NOT_FIT = 1
"""Exit code."""


@click.command(cls=SectionedCommand, short_help="Estimate what one rank needs, by part, each with its formula.")
@click.argument("config", required=False, type=click.Path(path_type=Path))
@memory_options
@report_options
def memory(config: Path | None, report: ReportOptions, **options: Any) -> int:
    """Estimate what one rank needs, by part, each with its formula.

    The fullest stage of the pipeline decides, at the fullest moment of a step. CONFIG is a DeepSpeed config: stage,
    dtypes, buckets, optimizer and offload come from it, and options count in place of what it says. Exit code 1 if it
    does not fit in --gpu-memory.

    \b
      ds-accum memory ds_config.json --model config.json --seq-len 4096
      ds-accum memory --model llama-2-7b --world-size 8 --micro-batch 1 \\
        --seq-len 4096 --zero-stage 3 --gpu-memory 80GB
      ds-accum memory ds_config.json --model gpt3-175b --seq-len 2048 \\
        --world-size 1024 --tp 8 --pp 16 --all-stages
    """
    from ds_accum.cli.ledger_inputs import launch_of, layout_and_ledger, read_config
    from ds_accum.cli.memory_inputs import training_of
    from ds_accum.plan.memory import estimate_memory
    from ds_accum.plan.reports.memory import memory_document, memory_json
    from ds_accum.plan.shapes import read_shape

    shape = read_shape(options["model"])
    if options["sequence_length"] is None:
        raise UsageError("activations need a sequence length", remedy="add --seq-len")
    options = {**options, "hf_args": None, "hf_arg": (), "data_parallel_size": None}
    launch = launch_of(options)
    values, filled_in = read_config(config, launch) if config is not None else ({}, frozenset())
    _require_known_dtype(filled_in, options)
    layout, ledger = layout_and_ledger(values, filled_in, launch, options)
    training = training_of(values, launch, layout, ledger, options)
    estimate = estimate_memory(shape, layout, training, all_stages=options["all_stages"])
    gpu_bytes = options["gpu_bytes"]
    report.write(
        lambda: memory_document(estimate, gpu_bytes=gpu_bytes, all_stages=options["all_stages"]),
        lambda: memory_json(estimate, gpu_bytes=gpu_bytes),
    )
    return DOES_NOT_FIT if gpu_bytes is not None and estimate.peak_bytes > gpu_bytes else 0


def _require_known_dtype(filled_in: frozenset[str], options: dict[str, Any]) -> None:
    """Raises UsageError where half of every number would be a guess."""
    unknown = sorted(filled_in & {"bf16.enabled", "fp16.enabled"})
    if unknown and options["dtype"] is None:
        raise UsageError(
            f'{unknown[0]} is "auto", which Trainer fills in', remedy="say what the model computes in with --dtype"
        )
