"""Options that several commands have, each written once: of the world, of its layout, of the batch, of Trainer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ds_accum.cli.sections import option
from ds_accum.cli.sizes import read_size, read_world_sizes

__all__ = ["BATCH_OPTIONS", "LAYOUT_OF_A_MODEL", "TRAINER_OPTIONS", "layout_options", "size_option", "world_options"]

Option = Callable[[Any], Any]

_BATCH = "Batch (over what the config says)"
_WORLD = "World"
_TRAINER = 'Arguments of Hugging Face\'s Trainer, which "auto" is filled in from'

_DEGREES = (
    ("tp", "tensor", "Tensor parallel size."),
    ("pp", "pipeline", "Pipeline parallel size; its micro-batches are the accumulation steps."),
    ("cp", "context", "Context parallel size."),
    ("sp", "sequence", "Sequence parallel size (Ulysses)."),
    ("ep", "expert", "Expert parallel size."),
)


def size_option(name: str, field: str, section: str, help_: str, *, default: int | None = None) -> Option:
    """An option that takes one size of at least 1."""
    return option(name, field, type=int, callback=read_size, metavar="N", default=default, section=section, help=help_)


def world_options(help_: str = "Ranks of the launch.") -> tuple[Option, ...]:
    """How many ranks there are; `help_` says of --world-size what the command does with several."""
    return (
        option("--world-size", callback=read_world_sizes, metavar="N", section=_WORLD, help=help_),
        size_option("--nodes", "nodes", _WORLD, "Machines, together with --gpus-per-node."),
        size_option("--gpus-per-node", "gpus_per_node", _WORLD, "Ranks of each machine."),
        option(
            "--hostfile",
            type=click.Path(path_type=Path),
            metavar="FILE",
            section=_WORLD,
            help="DeepSpeed's hostfile: the world is the sum of its slots.",
        ),
    )


def layout_options(section: str, *, default: int | None = None) -> tuple[Option, ...]:
    """The parallel degrees."""
    return tuple(
        size_option(f"--{short}", f"{name}_parallel_size", section, help_, default=default)
        for short, name, help_ in _DEGREES
    )


LAYOUT_OF_A_MODEL = (
    *layout_options("Parallel layout (1 unless given)"),
    size_option(
        "--etp",
        "expert_tensor_parallel_size",
        "Parallel layout (1 unless given)",
        "Ranks that share the weights of one expert.",
    ),
)

BATCH_OPTIONS = (
    size_option("--micro-batch", "micro_batch_size", _BATCH, "Samples of one forward on one rank."),
    size_option("--accumulation", "gradient_accumulation_steps", _BATCH, "Micro-batches of one optimizer step."),
    size_option("--global-batch", "global_batch_size", _BATCH, "Samples of one optimizer step, over all ranks."),
    size_option("--seq-len", "sequence_length", _BATCH, "Sequence length in tokens."),
)

TRAINER_OPTIONS = (
    option(
        "--hf-args",
        type=click.Path(path_type=Path),
        metavar="FILE",
        section=_TRAINER,
        help="TrainingArguments as JSON or YAML; other keys of the file are left alone.",
    ),
    option(
        "--hf-arg",
        multiple=True,
        metavar="NAME=VALUE",
        section=_TRAINER,
        help="One of them, over the file: per_device_train_batch_size=4.",
    ),
)
