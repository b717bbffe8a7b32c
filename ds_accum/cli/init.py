"""`ds-accum init`: a config to start from, exact in its arithmetic and checked by the linter before it is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ds_accum.cli.messages import print_note
from ds_accum.cli.sections import SectionedCommand, option
from ds_accum.cli.sizes import read_at_least_zero, read_more_than_zero, read_size, read_stage
from ds_accum.errors import UsageError

if TYPE_CHECKING:
    from ds_accum.config.launch import Launch
    from ds_accum.config.starter import Starter

__all__ = ["init"]

_BATCH = "Batch"
_LAYOUT = "Parallel layout of the script (1 unless given)"
_TRAINING = "Training"
_OUTPUT = "Output"


@click.command(cls=SectionedCommand, short_help="Write a config to start from.")
@option(
    "--world-size",
    type=int,
    callback=read_size,
    required=True,
    metavar="N",
    section=_BATCH,
    help="Ranks of the launch.",
)
@option(
    "--global-batch",
    type=int,
    callback=read_size,
    metavar="N",
    section=_BATCH,
    help="Samples per optimizer step over all ranks; the accumulation follows from it.",
)
@option(
    "--micro-batch",
    type=int,
    callback=read_size,
    metavar="N",
    section=_BATCH,
    help="Samples per forward and rank; 1 unless it follows from the others.",
)
@option(
    "--accumulation",
    type=int,
    callback=read_size,
    metavar="N",
    section=_BATCH,
    help="Micro-batches per optimizer step; 1 unless it follows from the others.",
)
@option("--tp", type=int, callback=read_size, default=1, metavar="N", section=_LAYOUT, help="Tensor parallel size.")
@option("--pp", type=int, callback=read_size, default=1, metavar="N", section=_LAYOUT, help="Pipeline parallel size.")
@option("--cp", type=int, callback=read_size, default=1, metavar="N", section=_LAYOUT, help="Context parallel size.")
@option("--sp", type=int, callback=read_size, default=1, metavar="N", section=_LAYOUT, help="Sequence parallel size.")
@option(
    "--stage",
    type=int,
    callback=read_stage,
    default=2,
    show_default=True,
    metavar="0-3",
    section=_TRAINING,
    help="ZeRO stage.",
)
@option(
    "--precision",
    type=click.Choice(["bf16", "fp16", "fp32"]),
    metavar="TYPE",
    default="bf16",
    show_default=True,
    section=_TRAINING,
    help="Of parameters: bf16, fp16, fp32. Gradients add up in fp32 where ZeRO can.",
)
@option(
    "--offload",
    type=click.Choice(["none", "cpu", "nvme"]),
    metavar="PLACE",
    default="none",
    show_default=True,
    section=_TRAINING,
    help="none, cpu or nvme: where optimizer states are kept, and at stage 3 parameters.",
)
@option("--nvme-path", metavar="DIR", section=_TRAINING, help="Folder on the NVMe device, for --offload nvme.")
@option(
    "--gradient-clipping",
    type=float,
    callback=read_at_least_zero,
    default=1.0,
    show_default=True,
    metavar="NORM",
    section=_TRAINING,
    help="Largest norm of the gradient; 0 is off.",
)
@option(
    "--learning-rate",
    type=float,
    callback=read_more_than_zero,
    default=1e-4,
    show_default=True,
    metavar="RATE",
    section=_TRAINING,
    help="Of AdamW.",
)
@option(
    "--total-steps",
    type=int,
    callback=read_size,
    metavar="N",
    section=_TRAINING,
    help="Optimizer steps of the training: adds a scheduler that warms up and decays.",
)
@option(
    "--client-optimizer",
    is_flag=True,
    section=_TRAINING,
    help="The script passes its own optimizer: leave it out.",
)
@option("--hf", "huggingface", is_flag=True, section=_TRAINING, help='For Hugging Face: "auto" where Trainer fills in.')
@option(
    "--deepspeed-version",
    metavar="VERSION",
    section=_TRAINING,
    help="The release to write for; else the one installed beside ds-accum, else the newest known.",
)
@option(
    "--output-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    section=_OUTPUT,
    help="Write it there, not to standard output.",
)
@option("--force", is_flag=True, section=_OUTPUT, help="Replace a file that is there already.")
def init(
    world_size: int,
    global_batch: int | None,
    micro_batch: int | None,
    accumulation: int | None,
    deepspeed_version: str | None,
    output_file: Path | None,
    force: bool,
    **options: Any,
) -> None:
    """Write a config to start from.

    The batch is solved exactly, or refused with the equation and the nearest sizes that fit. What is written has passed
    the linter for this launch.

    \b
      ds-accum init --stage 2 --world-size 8 --global-batch 256 --micro-batch 4
      ds-accum init --stage 3 --world-size 16 --output-file ds_config.json
    """
    from ds_accum.batch import ParallelLayout
    from ds_accum.cli.installed_deepspeed import release_to_judge_for
    from ds_accum.config.launch import Launch
    from ds_accum.config.schema import stand_in_for
    from ds_accum.config.starter import Starter

    degrees = {
        f"{name}_parallel_size": options.pop(short)
        for short, name in (("tp", "tensor"), ("pp", "pipeline"), ("cp", "context"), ("sp", "sequence"))
    }
    starter = Starter(
        layout=ParallelLayout(world_size=world_size, **degrees),
        global_batch_size=global_batch,
        micro_batch_size=micro_batch,
        gradient_accumulation_steps=accumulation,
        **options,
    )
    version, _ = release_to_judge_for(deepspeed_version)
    launch = Launch(
        world_size=world_size,
        **degrees,
        deepspeed_version=version,
        framework="huggingface" if starter.huggingface else "raw",
        client_optimizer=starter.client_optimizer or "optimizer" not in starter.config(),
    )
    text = config_text(starter)
    _refuse_what_the_linter_refuses(text, launch)
    if output_file is None:
        click.echo(text, nl=False)
    else:
        from ds_accum.cli.files import write_file

        write_file(output_file, text, replace=force)
    if starter.huggingface:
        print_note(f"start Trainer with {starter.trainer_arguments()}")
    stand_in = stand_in_for(version)
    if stand_in is not None:
        print_note(stand_in)


def config_text(starter: Starter) -> str:
    """The config as text, a list of numbers on one line."""
    import json
    import re

    text = json.dumps(starter.config(), indent=2)
    return re.sub(r"\[\s*([^][{}]*?)\s*\]", lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"


def _refuse_what_the_linter_refuses(text: str, launch: Launch) -> None:
    """A UsageError where an older release can't do what is asked; a config that fails with the newest is our bug."""
    from dataclasses import replace

    objections = _objections(text, launch)
    if not objections:
        return
    if _objections(text, replace(launch, deepspeed_version=None)):
        raise RuntimeError(f"the linter objects to a fresh config: {objections}")
    raise UsageError(f"this release of DeepSpeed can't: {objections}", remedy="ask for less, or for a newer release")


def _objections(text: str, launch: Launch) -> str:
    from ds_accum.lint.diagnostic import Severity
    from ds_accum.lint.linter import lint_text

    found = [item for item in lint_text(text, launches=[launch]) if item.severity is not Severity.INFO]
    return "; ".join(f"{item.code} {item.message}" for item in found)
