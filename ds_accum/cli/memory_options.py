"""The options of `ds-accum memory`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ds_accum.cli.sections import option
from ds_accum.cli.shared_options import BATCH_OPTIONS, LAYOUT_OF_A_MODEL, size_option, world_options
from ds_accum.cli.sizes import read_memory, read_more_than_zero

__all__ = ["memory_options"]

_MODEL = "Model"
_TRAINING = "Training (over what the config says)"
_ACTIVATIONS = "Activations"
_MORE = "More"

_DTYPES = click.Choice(["fp32", "bf16", "fp16"])
_OFFLOAD = click.Choice(["none", "cpu", "nvme"])
_OPTIMIZERS = ("adam", "adamw", "lamb", "lion", "sgd", "sgd_momentum", "adagrad", "rmsprop", "muon")


def memory_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds them all to a command."""
    for add in reversed(_OPTIONS):
        command = add(command)
    return command


def _read_stage(context: click.Context, parameter: click.Parameter, stage: int | None) -> int | None:
    from ds_accum.cli.sizes import read_stage

    return None if stage is None else read_stage(context, parameter, stage)


def _read_factor(context: click.Context, parameter: click.Parameter, factor: float | None) -> float | None:
    return None if factor is None else read_more_than_zero(context, parameter, factor)


def _read_layers(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...] | None:  # noqa: ARG001
    if text is None:
        return None
    from ds_accum.cli.schedule_values import read_counts

    return read_counts(text, option=parameter.opts[0])


_OPTIONS = (
    option(
        "--model",
        metavar="NAME",
        required=True,
        section=_MODEL,
        help="A Hugging Face config.json, its folder, or a shape that ds-accum brings along, as llama-2-7b.",
    ),
    *BATCH_OPTIONS,
    *world_options(),
    *LAYOUT_OF_A_MODEL,
    option("--zero-stage", type=int, callback=_read_stage, metavar="N", section=_TRAINING, help="0 to 3; else 0."),
    option("--dtype", type=_DTYPES, section=_TRAINING, help="Of the model; else bf16."),
    option(
        "--grad-accum-dtype",
        type=_DTYPES,
        section=_TRAINING,
        help="What gradients add up and travel in; else what the config says, without one fp32, which ZeRO 0 can't.",
    ),
    option(
        "--optimizer",
        type=click.Choice(_OPTIMIZERS),
        metavar="NAME",
        section=_TRAINING,
        help=f"{', '.join(_OPTIMIZERS)}; else adamw.",
    ),
    option("--offload-optimizer", type=_OFFLOAD, section=_TRAINING, help="Where the optimizer's state is kept."),
    option("--offload-parameters", type=_OFFLOAD, section=_TRAINING, help="Where ZeRO-3's parameters are kept."),
    option(
        "--recompute",
        type=click.Choice(["none", "selective", "full"]),
        default="none",
        show_default=True,
        section=_ACTIVATIONS,
        help="Repeat nothing, the core of attention, or whole layers in the backward.",
    ),
    option(
        "--attention",
        type=click.Choice(["flash", "plain"]),
        default="flash",
        show_default=True,
        section=_ACTIVATIONS,
        help="Whether the scores of attention are kept.",
    ),
    option(
        "--kernels",
        type=click.Choice(["fused", "plain"]),
        default="fused",
        show_default=True,
        section=_ACTIVATIONS,
        help="Whether norms, activation functions and the loss are one operation each, as in Megatron-LM, or are"
        " written in PyTorch, as in transformers.",
    ),
    option("--dropout", is_flag=True, section=_ACTIVATIONS, help="The model has dropout."),
    option(
        "--megatron-sequence-parallel",
        type=click.Choice(["yes", "no"]),
        section=_ACTIVATIONS,
        help="Tensor parallel ranks split norms and residuals by tokens, as in Megatron-LM; unless given yes where they"
        " divide evenly.",
    ),
    option(
        "--sequence-norm-gradients",
        type=click.Choice(["each_micro_batch", "deferred"]),
        default="each_micro_batch",
        show_default=True,
        metavar="WHEN",
        section=_ACTIVATIONS,
        help="When the gradients of those norms are summed over the ranks: each_micro_batch, deferred.",
    ),
    option(
        "--expert-capacity-factor",
        type=float,
        callback=_read_factor,
        metavar="R",
        section=_ACTIVATIONS,
        help="Room of an expert for tokens, in an even share of them; without it none is dropped and all are even.",
    ),
    option(
        "--schedule",
        type=click.Choice(["1f1b", "gpipe", "interleaved"]),
        default="1f1b",
        show_default=True,
        section=_ACTIVATIONS,
        help="Of the pipeline.",
    ),
    option(
        "--layers-per-stage",
        callback=_read_layers,
        metavar="LIST",
        section=_ACTIVATIONS,
        help="Layers of each stage, 21,20,20,19; as even as can be unless given.",
    ),
    size_option(
        "--virtual-stages", "virtual_stages", _ACTIVATIONS, "Model chunks of a stage, for the interleaved schedule."
    ),
    option(
        "--gpu-memory",
        "gpu_bytes",
        callback=read_memory,
        metavar="BYTES",
        section=_MORE,
        help="What a GPU has, to be told whether it fits: 80GB, 84.9e9.",
    ),
    option("--all-stages", is_flag=True, section=_MORE, help="Show every stage of the pipeline."),
)
