"""The options of `ds-accum ledger`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ds_accum.cli.sections import option
from ds_accum.cli.sizes import read_size, read_world_sizes

__all__ = ["ledger_options"]

_BATCH = "Batch (over what the config says)"
_WORLD = "World"
_LAYOUT = "Parallel layout (1 unless given)"
_MODEL = "Model (for bytes and memory)"
_LENGTH = "Length of the training"
_MORE = "More"
_TRAINER = 'Arguments of Hugging Face\'s Trainer, which "auto" is filled in from'


def ledger_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds them all to a command."""
    for add in reversed(_OPTIONS):
        command = add(command)
    return command


def _read_quantity(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:  # noqa: ARG001
    if text is None:
        return None
    from ds_accum.plan.quantities import read_quantity

    return read_quantity(text, name=parameter.opts[0])


def _size(name: str, field: str, section: str, help_: str) -> Callable[[Any], Any]:
    return option(name, field, type=int, callback=read_size, metavar="N", section=section, help=help_)


def _quantity(name: str, field: str, section: str, help_: str) -> Callable[[Any], Any]:
    return option(name, field, callback=_read_quantity, metavar="N", section=section, help=help_)


_OPTIONS = (
    _size("--micro-batch", "micro_batch_size", _BATCH, "Samples of one forward on one rank."),
    _size("--accumulation", "gradient_accumulation_steps", _BATCH, "Micro-batches of one optimizer step."),
    _size("--global-batch", "global_batch_size", _BATCH, "Samples of one optimizer step, over all ranks."),
    _size("--data-parallel", "data_parallel_size", _BATCH, "In place of a world size: groups that see other samples."),
    _size("--seq-len", "sequence_length", _BATCH, "Sequence length in tokens."),
    option(
        "--world-size",
        callback=read_world_sizes,
        metavar="N",
        section=_WORLD,
        help="Ranks of the launch.",
    ),
    _size("--nodes", "nodes", _WORLD, "Machines, together with --gpus-per-node."),
    _size("--gpus-per-node", "gpus_per_node", _WORLD, "Ranks of each machine."),
    option(
        "--hostfile",
        type=click.Path(path_type=Path),
        metavar="FILE",
        section=_WORLD,
        help="DeepSpeed's hostfile: the world is the sum of its slots.",
    ),
    *(
        _size(f"--{short}", f"{name}_parallel_size", _LAYOUT, help_)
        for short, name, help_ in (
            ("tp", "tensor", "Tensor parallel size."),
            ("pp", "pipeline", "Pipeline parallel size; its micro-batches are the accumulation steps."),
            ("cp", "context", "Context parallel size."),
            ("sp", "sequence", "Sequence parallel size (Ulysses)."),
            ("ep", "expert", "Expert parallel size."),
            ("etp", "expert_tensor", "Ranks that share the weights of one expert."),
        )
    ),
    option(
        "--model",
        metavar="NAME",
        section=_MODEL,
        help="A Hugging Face config.json, its folder, or a shape that ds-accum brings along, as llama-2-7b.",
    ),
    _quantity("--parameters", "parameters", _MODEL, "Their number alone: 7e9, 7B, 124M."),
    option(
        "--dtype",
        type=click.Choice(["fp32", "bf16", "fp16"]),
        section=_MODEL,
        help="What parameters and gradients are sent in; else what the config enables, else bf16.",
    ),
    option(
        "--coalesced",
        is_flag=True,
        section=_MODEL,
        help="ZeRO-2 and 3 reduce at the accumulation boundary alone, as our engine can.",
    ),
    _quantity("--samples", "num_samples", _LENGTH, "Samples of one epoch."),
    _size("--epochs", "epochs", _LENGTH, "Epochs of them; 1 unless given."),
    option("--drop-last", is_flag=True, section=_LENGTH, help="Leave out a last micro-batch that is not full."),
    _quantity("--tokens", "token_budget", _LENGTH, "A token budget in place of epochs: 300B."),
    _quantity("--steps", "total_steps", _LENGTH, "Optimizer steps in place of either."),
    _quantity("--warmup-steps", "warmup_steps", _LENGTH, "Warmup in optimizer steps,"),
    _quantity("--warmup-samples", "warmup_samples", _LENGTH, "in samples,"),
    _quantity("--warmup-tokens", "warmup_tokens", _LENGTH, "in tokens,"),
    option("--warmup-ratio", metavar="R", section=_LENGTH, help="or as a part of all optimizer steps: 0.03."),
    option(
        "--vary",
        metavar="SPLITS",
        section=_MORE,
        help="Splits of the same global batch side by side, micro batch x data parallel x accumulation:"
        " 4x8x4,8x16x1. all: every split of this data parallel size; any: of every one.",
    ),
    _size("--experts", "num_experts", _MORE, "Experts of a layer: how their tokens spread, for growing accumulation."),
    _size("--top-k", "experts_per_token", _MORE, "Experts of a token; 1 unless given."),
    option(
        "--routing",
        metavar="NAME",
        section=_MORE,
        help="uniform, which it is unless given, or zipf:1.0 with its exponent.",
    ),
    option(
        "--max-spread",
        metavar="R",
        section=_MORE,
        help="Find the accumulation that brings the spread over experts to it: 0.05.",
    ),
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
