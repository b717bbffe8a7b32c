"""The options of `ds-accum ledger`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ds_accum.cli.sections import option
from ds_accum.cli.shared_options import BATCH_OPTIONS, LAYOUT_OF_A_MODEL, TRAINER_OPTIONS, size_option, world_options
from ds_accum.cli.sizes import read_count

__all__ = ["ledger_options"]

_BATCH = "Batch (over what the config says)"
_MODEL = "Model (for bytes and memory)"
_LENGTH = "Length of the training"
_MORE = "More"


def ledger_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds them all to a command."""
    for add in reversed(_OPTIONS):
        command = add(command)
    return command


def _quantity(name: str, field: str, section: str, help_: str) -> Callable[[Any], Any]:
    return option(name, field, callback=read_count, metavar="N", section=section, help=help_)


_OPTIONS = (
    *BATCH_OPTIONS[:-1],
    size_option(
        "--data-parallel", "data_parallel_size", _BATCH, "In place of a world size: groups that see other samples."
    ),
    BATCH_OPTIONS[-1],
    *world_options(),
    *LAYOUT_OF_A_MODEL,
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
    size_option("--epochs", "epochs", _LENGTH, "Epochs of them; 1 unless given."),
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
    size_option(
        "--experts", "num_experts", _MORE, "Experts of a layer: how their tokens spread, for growing accumulation."
    ),
    size_option("--top-k", "experts_per_token", _MORE, "Experts of a token; 1 unless given."),
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
    *TRAINER_OPTIONS,
)
