"""`ds-accum plan`: from a recipe to layouts and a config; everything but the options is `ds_accum.plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ds_accum.cli.messages import print_note
from ds_accum.cli.plan_options import PlanOptions, plan_options
from ds_accum.cli.report_options import ReportOptions, report_options
from ds_accum.cli.sections import SectionedCommand, option
from ds_accum.cli.sizes import read_at_least_zero, read_more_than_zero, read_size
from ds_accum.errors import UsageError

if TYPE_CHECKING:
    from ds_accum.plan.planned import Plan
    from ds_accum.reporting import Document

__all__ = ["plan"]

NOTHING_FITS = 1
_CONFIG = "Config"


@click.command(cls=SectionedCommand, short_help="Find the layouts that fit a model on GPUs, best first.")
@plan_options
@option(
    "--write",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    section=_CONFIG,
    help="Write the DeepSpeed config of a layout there.",
)
@option(
    "--layout",
    "number",
    type=int,
    callback=read_size,
    default=1,
    show_default=True,
    metavar="N",
    section=_CONFIG,
    help="Which of the layouts to tell in full, and to write.",
)
@option("--force", is_flag=True, section=_CONFIG, help="Replace a file that is there already.")
@option(
    "--learning-rate",
    type=float,
    callback=read_more_than_zero,
    default=1e-4,
    show_default=True,
    metavar="RATE",
    section=_CONFIG,
    help="Of the optimizer in the config.",
)
@option(
    "--gradient-clipping",
    type=float,
    callback=read_at_least_zero,
    default=1.0,
    show_default=True,
    metavar="NORM",
    section=_CONFIG,
    help="Largest norm of the gradient in the config; 0 is off.",
)
@option(
    "--top",
    type=int,
    callback=read_size,
    default=5,
    show_default=True,
    metavar="N",
    section="Report",
    help="Layouts to show.",
)
@report_options
def plan(
    asked: PlanOptions,
    config_file: Path | None,
    number: int,
    force: bool,
    learning_rate: float,
    gradient_clipping: float,
    top: int,
    report: ReportOptions,
) -> int:
    """Find the layouts that fit a model on GPUs, best first.

    Every legal layout is tried: tensor, pipeline, sequence, context, expert and data parallel, ZeRO stage, recompute,
    micro batch and accumulation. Those that fit are put in order of time per token. Exit code 1 if nothing fits.

    \b
      ds-accum plan --model llama-2-70b --gpus 64 --hardware h100 \\
          --seq-len 4096 --tokens-per-step 4Mi
      ds-accum plan --model config.json --gpus 8 --seq-len 2048 \\
          --global-batch 512 --write ds_config.json
    """
    from ds_accum.plan.remedies import remedies_for
    from ds_accum.plan.search import plan_batch
    from ds_accum.plan.shapes import read_shape

    if config_file is not None:
        # Before the search and its report, which would be for nothing.
        _require_place(config_file, report.output_file, force=force)
    found = plan_batch(
        shape=read_shape(asked.model),
        hardware=asked.gpu(),
        world_size=asked.world_size,
        sequence_length=asked.sequence_length,
        global_batch_size=asked.global_batch_size,
        tokens_per_step=asked.tokens_per_step,
        training=asked.training(),
        limits=asked.limits(),
        assumptions=asked.assumptions(),
        most=max(top, number),
    )
    remedies = () if found.layouts else remedies_for(found)
    text = None
    if found.layouts:
        _require_layout(found, number)
    if config_file is not None and found.layouts:
        text = _config_of(found, number, learning_rate=learning_rate, gradient_clipping=gradient_clipping)

    def document() -> Document:
        from ds_accum.plan.reports.plan import plan_document

        return plan_document(
            found,
            notes=asked.notes(),
            remedies=remedies,
            shown=number,
            config_name="ds_config.json" if config_file is None else str(config_file),
            model_name=asked.model,
        )

    def value() -> dict[str, object]:
        from ds_accum.plan.reports.plan_json import plan_value

        return plan_value(found, notes=asked.notes(), remedies=remedies)

    report.write(document, value)
    if config_file is not None:
        if text is None:
            print_note(f"{config_file} was not written: nothing fits", color=report.color)
        else:
            from ds_accum.cli.files import write_file

            write_file(config_file, text, replace=force)
            print_note(f"{config_file} holds the config of layout {number}", color=report.color)
    return 0 if found.layouts else NOTHING_FITS


def _require_place(config_file: Path, output_file: Path | None, *, force: bool) -> None:
    """Raises UsageError where the config can't be written later on."""
    from ds_accum.cli.files import require_folder

    if output_file is not None and output_file.absolute() == config_file.absolute():
        raise UsageError(
            f"--write and --output-file are both {config_file}", remedy="give the config and the report a file each"
        )
    if config_file.exists() and not force:
        raise UsageError(f"{config_file} is there already", remedy="give another name, or --force to replace it")
    require_folder(config_file)


def _require_layout(found: Plan, number: int) -> None:
    if number > len(found.layouts):
        raise UsageError(
            f"there is no layout {number} among {len(found.layouts)} that fit", remedy="give one of their numbers"
        )


def _config_of(found: Plan, number: int, *, learning_rate: float, gradient_clipping: float) -> str:
    """The config of one of the layouts as text."""
    from ds_accum.plan.ds_config import config_text, deepspeed_config

    planned = found.layouts[number - 1]
    return config_text(deepspeed_config(planned, learning_rate=learning_rate, gradient_clipping=gradient_clipping))
