"""The options of `ds-accum compare`, under their headings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ds_accum.cli.compare_values import (
    read_baselines,
    read_engines,
    read_gates,
    read_projection,
    read_splits,
    read_stages,
    read_variations,
    read_workload,
)
from ds_accum.cli.messages import COLORS
from ds_accum.cli.sections import option
from ds_accum.cli.sizes import read_at_least_zero, read_more_than_zero, read_size

__all__ = ["FORMATS", "compare_options"]

FORMATS = ("text", "md", "json")

_VARIANTS = "What is compared"
_TRAINING = "Training"
_WORKLOAD = "Workload"
_LAUNCH = "Launch"
_MEASURES = "Measures and gates"
_OUTPUT = "Output"


def compare_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options to the command."""
    for add in reversed(_OPTIONS):
        command = add(command)
    return command


_OPTIONS = (
    option(
        "--stages",
        callback=read_stages,
        default="0,1,2,3",
        show_default=True,
        metavar="LIST",
        section=_VARIANTS,
        help="ZeRO stages.",
    ),
    option(
        "--engines",
        callback=read_engines,
        default="stock,token",
        show_default=True,
        metavar="LIST",
        section=_VARIANTS,
        help="stock is DeepSpeed alone, token is DeepSpeed with ds-accum; or none.",
    ),
    option(
        "--baselines",
        callback=read_baselines,
        default="ddp,fsdp,single",
        show_default=True,
        metavar="LIST",
        section=_VARIANTS,
        help="ddp, ddp-every, fsdp, fsdp-every, single; or none. -every synchronizes each micro-batch, not once a step;"
        " single is one process in float64 on the whole batch, the truth.",
    ),
    option(
        "--vary",
        multiple=True,
        callback=read_variations,
        metavar="KEY=A,B",
        section=_VARIANTS,
        help="Values of a config key: zero_optimization.overlap_comm=true,false. Several: each with each.",
    ),
    option(
        "--splits",
        callback=read_splits,
        metavar="LIST",
        section=_VARIANTS,
        help="Micro batch x accumulation, of one global batch: 4x8,8x4.",
    ),
    option(
        "--coalesce",
        is_flag=True,
        section=_VARIANTS,
        help="Also ZeRO-2 and 3 under engine.coalesce_grad_reduction(), which reduces once a step instead of in each"
        " micro-batch.",
    ),
    option(
        "--world-size",
        type=int,
        callback=read_size,
        default=2,
        show_default=True,
        metavar="N",
        section=_TRAINING,
        help="Ranks.",
    ),
    option(
        "--micro-batch",
        type=int,
        callback=read_size,
        metavar="N",
        section=_TRAINING,
        help="Samples per forward and rank; else the config's, else 2.",
    ),
    option(
        "--accumulation",
        type=int,
        callback=read_size,
        metavar="N",
        section=_TRAINING,
        help="Micro-batches per optimizer step; else the config's, else 4.",
    ),
    option(
        "--steps",
        type=int,
        callback=read_size,
        default=10,
        show_default=True,
        metavar="N",
        section=_TRAINING,
        help="Optimizer steps.",
    ),
    option(
        "--optimizer",
        type=click.Choice(["sgd", "adamw"]),
        default="sgd",
        show_default=True,
        section=_TRAINING,
        help="torch's.",
    ),
    option(
        "--learning-rate",
        type=float,
        callback=read_more_than_zero,
        default=0.1,
        show_default=True,
        metavar="RATE",
        section=_TRAINING,
        help="Constant.",
    ),
    option(
        "--workload",
        callback=read_workload,
        metavar="WHAT",
        section=_WORKLOAD,
        help="train.py:build, a function of yours; or a Hugging Face folder or config.json; else a small transformer on"
        " text of uneven lengths.",
    ),
    option(
        "--seed", type=int, default=0, show_default=True, metavar="N", section=_WORKLOAD, help="Of parameters and text."
    ),
    option("--layers", type=int, callback=read_size, default=2, show_default=True, metavar="N", section=_WORKLOAD),
    option("--width", type=int, callback=read_size, default=64, show_default=True, metavar="N", section=_WORKLOAD),
    option("--heads", type=int, callback=read_size, default=4, show_default=True, metavar="N", section=_WORKLOAD),
    option(
        "--vocabulary", type=int, callback=read_size, default=256, show_default=True, metavar="N", section=_WORKLOAD
    ),
    option(
        "--seq-len",
        "sequence_length",
        type=int,
        callback=read_size,
        default=64,
        show_default=True,
        metavar="N",
        section=_WORKLOAD,
        help="Longest sequence in tokens.",
    ),
    option(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        show_default=True,
        section=_LAUNCH,
        help="auto: CUDA where each rank has a device, else the CPU.",
    ),
    option(
        "--launcher",
        type=click.Choice(["local", "torchrun", "deepspeed"]),
        default="local",
        show_default=True,
        section=_LAUNCH,
        help="Who starts the ranks.",
    ),
    option(
        "--hostfile",
        type=click.Path(path_type=Path),
        metavar="FILE",
        section=_LAUNCH,
        help="DeepSpeed's hostfile, for torchrun (through ssh) and deepspeed; with --shared-dir.",
    ),
    option(
        "--master-port", type=click.IntRange(1, 65535), metavar="N", section=_LAUNCH, help="For torchrun and deepspeed."
    ),
    option(
        "--shared-dir",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        section=_LAUNCH,
        help="A folder that all hosts see.",
    ),
    option(
        "--timeout",
        type=float,
        callback=read_more_than_zero,
        default=120,
        show_default=True,
        metavar="SECONDS",
        section=_LAUNCH,
        help="Without progress, after which a launch is given up.",
    ),
    option("--memory/--no-memory", default=True, section=_MEASURES, help="Memory, in a launch for each variant. [on]"),
    option("--misuse", is_flag=True, section=_MEASURES, help="What clipping, zeroing and stepping in mid-window do."),
    option(
        "--fail-if",
        multiple=True,
        callback=read_gates,
        metavar="LIMIT",
        section=_MEASURES,
        help="Exit code 1 past a limit: parity>1e-4, token:parity>1e-4, 'zero-3 stock:step_time>1.5', memory>2GiB,"
        " bytes, calls.",
    ),
    option(
        "--project",
        callback=read_projection,
        metavar="world=N,N",
        section=_MEASURES,
        help="Also say, by formula, what the counted collectives come to on more ranks.",
    ),
    option(
        "--link-gbytes",
        type=float,
        callback=read_more_than_zero,
        default=25.0,
        show_default=True,
        metavar="GB/S",
        is_eager=True,
        section=_MEASURES,
        help="For --project: what a rank sends in a second.",
    ),
    option(
        "--link-latency",
        type=float,
        callback=read_at_least_zero,
        default=5.0,
        show_default=True,
        metavar="US",
        is_eager=True,
        section=_MEASURES,
        help="For --project: microseconds until a message arrives.",
    ),
    option(
        "--show-configs", is_flag=True, section=_OUTPUT, help="Print each variant's config and what lint says of it."
    ),
    option(
        "--output-dir",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("comparison"),
        show_default=True,
        metavar="DIR",
        section=_OUTPUT,
        help="Where report.html and report.json go.",
    ),
    option(
        "--from",
        "source",
        type=click.Path(path_type=Path),
        metavar="REPORT",
        section=_OUTPUT,
        help="Run nothing: render this report.json.",
    ),
    option(
        "--format",
        "format_name",
        type=click.Choice(FORMATS),
        default="text",
        show_default=True,
        section=_OUTPUT,
        help="On standard output.",
    ),
    option("--quiet", "-q", is_flag=True, section=_OUTPUT, help="No progress, and no report on standard output."),
    option(
        "--color",
        type=click.Choice(COLORS),
        metavar="WHEN",
        default="auto",
        show_default=True,
        section=_OUTPUT,
        help="auto, always, never.",
    ),
)
