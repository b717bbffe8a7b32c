"""`ds-accum schedule`: the timeline of a pipeline; everything but the options is `ds_accum.plan.pipeline`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ds_accum.cli.report_options import ReportOptions, report_options
from ds_accum.cli.sections import SectionedCommand, option
from ds_accum.errors import UsageError

if TYPE_CHECKING:
    from ds_accum.plan.pipeline import PipelineShape, PipelineSummary, StageTimes
    from ds_accum.plan.reports.schedule import Recut, ScheduleReport

__all__ = ["schedule"]

_PIPELINE = "Pipeline"
_TIMES = "Times"
_MORE = "What else to say"


@click.command(cls=SectionedCommand, short_help="Draw a pipeline's timeline, and say what its stages wait and hold.")
@option("--stages", type=int, required=True, section=_PIPELINE, help="Pipeline parallel size.")
@option(
    "--micro-batches",
    type=int,
    section=_PIPELINE,
    help="Micro-batches a step: the gradient accumulation steps. Without it, the fewest that --max-bubble allows.",
)
@option(
    "--schedule",
    "name",
    default="1f1b",
    show_default=True,
    metavar="NAME",
    section=_PIPELINE,
    help="gpipe, 1f1b, interleaved, zero-bubble, zero-bubble-v, dualpipev; torch's names are understood too. all: 1f1b,"
    " and a table of all of them.",
)
@option(
    "--virtual-stages",
    type=int,
    section=_PIPELINE,
    help="Chunks of layers a stage holds; 2 for interleaved, zero-bubble-v and dualpipev unless set, else 1.",
)
@option(
    "--stage-times",
    metavar="LIST",
    section=_TIMES,
    help="Seconds that a micro-batch takes on each stage: 0.01,0.01,0.013 forward, with a backward of twice that, or"
    " 0.01/0.02,0.01/0.02,0.013/0.026. One for all stages if they are equal. Without it, forward is 1 and backward 2.",
)
@option(
    "--slow",
    multiple=True,
    metavar="STAGE:FACTOR",
    section=_TIMES,
    help="A stage that takes longer: 2:1.3 is 30 % more on stage 2, the third. Several may be given.",
)
@option(
    "--transfer-time",
    metavar="TIME",
    default="0",
    section=_TIMES,
    help="Until an activation or its gradient is on the next stage, in the same unit; a stage computes meanwhile.",
)
@option(
    "--weight-share",
    metavar="SHARE",
    default="0.5",
    show_default=True,
    section=_TIMES,
    help="The gradient of the weights in the backward, for schedules that do it apart.",
)
@option("--max-bubble", metavar="SHARE", section=_MORE, help="Say the fewest micro-batches that keep it: 0.15, or 15%.")
@option(
    "--activation-bytes",
    metavar="LIST",
    section=_MORE,
    help="What one micro-batch leaves on a stage until its backward: 1.5GB for all, or one for each stage.",
)
@option(
    "--layers",
    metavar="LIST",
    section=_MORE,
    help="Say where to cut instead: layers of each stage as 8,8,8,8, or how many there are.",
)
@option(
    "--fixed",
    multiple=True,
    metavar="STAGE:TIME",
    section=_MORE,
    help="The part of a stage's forward that is not its layers', such as the logits, and stays there in another cut.",
)
@option(
    "--svg",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    section="Report",
    help="Also write the timeline as a drawing.",
)
@report_options
def schedule(report: ReportOptions, svg: Path | None, **options: Any) -> None:
    """Draw a pipeline's timeline, and say what its stages wait and hold.

    One accumulation window is simulated in exact numbers, from the order of instructions that DeepSpeed and torch run.

    \b
      ds-accum schedule --stages 4 --micro-batches 8
      ds-accum schedule --stages 4 --max-bubble 0.15
      ds-accum schedule --stages 4 --micro-batches 8 --schedule interleaved
      ds-accum schedule --stages 4 --micro-batches 32 --slow 2:1.3 --layers 32
      ds-accum schedule --stages 8 --micro-batches 64 --schedule all --format html
    """
    from ds_accum.plan.reports.schedule import schedule_document
    from ds_accum.plan.reports.schedule_json import schedule_json
    from ds_accum.plan.reports.timeline_text import DRAWN_WITH

    result = _report(options)
    if svg is not None:
        _write_svg(svg, result)
    report.write(
        lambda: schedule_document(result, width=report.width, blocks=report.can_show(DRAWN_WITH)),
        lambda: schedule_json(result),
    )


def _report(options: dict[str, Any]) -> ScheduleReport:
    from ds_accum.cli.schedule_values import read_share
    from ds_accum.plan.pipeline import fill_pipeline, schedule_named, summarize_pipeline
    from ds_accum.plan.pipeline.bubble import share_limit
    from ds_accum.plan.pipeline.comparison import compare_schedules
    from ds_accum.plan.pipeline.shape import PipelineShape
    from ds_accum.plan.reports.schedule import ScheduleReport

    stages, micro_batches = options["stages"], options["micro_batches"]
    for_all = options["name"].strip().lower() == "all"
    known = schedule_named("1f1b" if for_all else options["name"])
    given = options["virtual_stages"]
    virtual_stages = known.default_virtual_stages if given is None or for_all else given
    if options["max_bubble"] is None and micro_batches is None:
        raise UsageError(
            "neither --micro-batches nor --max-bubble is given", remedy="say how many, or how large the bubble may be"
        )
    # What is wrong with the sizes is said before what is wrong with the times.
    PipelineShape(
        schedule=known.name,
        stages=stages,
        micro_batches=2 * max(stages, 1) if micro_batches is None else micro_batches,
        virtual_stages=virtual_stages,
    )
    times = _times(options, stages)
    limit = fewest = None
    if options["max_bubble"] is not None:
        limit = share_limit(read_share(options["max_bubble"], option="--max-bubble"))
        fewest = fill_pipeline(
            schedule=known.name, stages=stages, max_bubble=limit, virtual_stages=virtual_stages, times=times
        )
        micro_batches = fewest.micro_batches if micro_batches is None else micro_batches
    shape = PipelineShape(
        schedule=known.name, stages=stages, micro_batches=micro_batches, virtual_stages=virtual_stages
    )
    summary = summarize_pipeline(shape, times)
    return ScheduleReport(
        summary=summary,
        in_seconds=options["stage_times"] is not None,
        activation_bytes=_activation_bytes(options["activation_bytes"], stages),
        max_bubble=limit,
        fewest=fewest,
        recut=_recut(options, shape, summary),
        others=compare_schedules(stages=stages, micro_batches=micro_batches, virtual_stages=given, times=times)
        if for_all
        else (),
    )


def _times(options: dict[str, Any], stages: int) -> StageTimes:
    from ds_accum.cli.schedule_values import read_by_stage, read_number, read_times
    from ds_accum.plan.pipeline import stage_times

    forward: Any = 1
    backward: Any = None
    if options["stage_times"] is not None:
        given = read_times(options["stage_times"])
        forward, backward = given.forward, given.backward
        if len(forward) == 1:
            forward, backward = forward[0], None if backward is None else backward[0]
    elif options["layers"] is not None:
        # A stage with more layers takes longer, in forwards of a stage with the mean.
        layers = _layers(options["layers"], stages)
        forward = [_share(count, layers) for count in layers]
    return stage_times(
        stages,
        forward=forward,
        backward=backward,
        transfer=read_number(options["transfer_time"], option="--transfer-time"),
        slow=read_by_stage(options["slow"], option="--slow"),
        weight_share=read_number(options["weight_share"], option="--weight-share"),
    )


def _share(count: int, layers: tuple[int, ...]) -> Any:
    from fractions import Fraction

    return Fraction(count * len(layers), sum(layers))


def _layers(text: str, stages: int) -> tuple[int, ...]:
    from ds_accum.cli.schedule_values import read_counts
    from ds_accum.plan.pipeline import even_cut

    layers = read_counts(text, option="--layers")
    if len(layers) == 1:
        return even_cut(layers[0], stages)
    if len(layers) != stages:
        raise UsageError(
            f"--layers says {len(layers)} numbers for {stages} stages",
            remedy="give one for each stage, or how many layers there are",
        )
    return layers


def _recut(options: dict[str, Any], shape: PipelineShape, summary: PipelineSummary) -> Recut | None:
    from ds_accum.cli.schedule_values import read_by_stage
    from ds_accum.plan.pipeline import move_layers, summarize_pipeline
    from ds_accum.plan.reports.schedule import Recut

    fixed = read_by_stage(options["fixed"], option="--fixed")
    if options["layers"] is None:
        if fixed:
            raise UsageError("--fixed says nothing without --layers", remedy="say how many layers there are")
        return None
    if shape.virtual_stages > 1:
        raise UsageError(
            f"--layers cuts a model into one chunk a stage, and {shape.schedule} has {shape.virtual_stages}",
            remedy="use --schedule 1f1b",
        )
    layers = _layers(options["layers"], shape.stages)
    times = summary.times
    cut = move_layers(times, layers, fixed)
    factors = [load / now for load, now in zip(cut.loads, times.per_micro_batch, strict=True)]
    return Recut(layers=layers, cut=cut, summary=summarize_pipeline(shape, times.scaled(factors)))


def _activation_bytes(text: str | None, stages: int) -> tuple[int, ...] | None:
    from ds_accum.cli.schedule_values import read_bytes

    if text is None:
        return None
    sizes = read_bytes(text, option="--activation-bytes")
    if len(sizes) not in (1, stages):
        raise UsageError(
            f"--activation-bytes says {len(sizes)} sizes for {stages} stages",
            remedy="give one for each, or one for all",
        )
    return sizes * stages if len(sizes) == 1 else sizes


def _write_svg(path: Path, result: ScheduleReport) -> None:
    from ds_accum.cli.files import write_file
    from ds_accum.plan.reports.timeline_svg import timeline_svg

    if result.summary.timeline is None:
        raise UsageError(
            f"--svg can't draw {result.summary.shape.micro_batches} micro-batches", remedy="draw fewer micro-batches"
        )
    unit = "seconds" if result.in_seconds else "forwards"
    write_file(path, timeline_svg(result.summary.timeline, unit=unit, standalone=True) + "\n")
