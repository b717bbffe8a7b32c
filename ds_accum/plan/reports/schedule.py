"""What `ds-accum schedule` has to say: one pipeline in sentences, a timeline and tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from ds_accum.plan.pipeline import (
    LayerCut,
    PipelineShape,
    PipelineSummary,
    activation_bytes,
)
from ds_accum.plan.pipeline.comparison import ScheduleOutcome
from ds_accum.plan.reports.timeline_svg import timeline_svg
from ds_accum.plan.reports.timeline_text import timeline_text
from ds_accum.reporting import Document, Section, Table, bytes_text, count_text, listed, seconds_text

__all__ = ["Recut", "ScheduleReport", "percent", "schedule_document"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recut:
    """Where to cut the layers instead, and what the pipeline does then."""

    layers: tuple[int, ...]
    cut: LayerCut
    summary: PipelineSummary


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleReport:
    """Everything that is reported of one pipeline.

    Times are seconds, or forwards of a stage where none were given. `activation_bytes` is what one micro-batch leaves
    on each stage; `max_bubble` the share that was asked for, and `fewest` the pipeline with the fewest micro-batches
    that keeps it; `others` the same under every schedule. Each is None or empty where it was not asked for.
    """

    summary: PipelineSummary
    in_seconds: bool
    activation_bytes: tuple[int, ...] | None = None
    max_bubble: Fraction | None = None
    fewest: PipelineShape | None = None
    recut: Recut | None = None
    others: tuple[ScheduleOutcome, ...] = ()


def schedule_document(report: ScheduleReport, *, width: int = 80, blocks: bool = True) -> Document:
    """The report in the order of reading; `blocks` allows characters beyond ASCII in the timeline of a terminal."""
    shape = report.summary.shape
    chunks = f", {shape.virtual_stages} chunks a stage" if shape.virtual_stages > 1 else ""
    micro_batches = _counted(shape.micro_batches, "micro-batch", "micro-batches")
    return Document(
        title=f"{shape.kind.title}: {_counted(shape.stages, 'stage', 'stages')}{chunks}, {micro_batches} a step",
        lead=tuple(_lead(report)),
        sections=tuple(_sections(report, width, blocks)),
    )


def percent(share: Fraction) -> str:
    """Three digits that matter: 27.3 %."""
    return f"{float(share) * 100:.3g} %"


# ------------------------------------------------------------------------------------------------------------ sentences


def _lead(report: ScheduleReport) -> Iterator[str]:
    summary, shape = report.summary, report.summary.shape
    yield (
        f"the bubble is {percent(summary.bubble_share)} of a step{_fraction(summary.bubble_share)}: waiting adds"
        f" {percent(summary.bubble_overhead)} to what the stages compute"
    )
    ideal = summary.step_time * (1 - summary.bubble_share)
    took = f"a step takes {_time(report, summary.step_time)}, and would take {_time(report, ideal)} without waiting"
    without = summary.bubble_share_without_boundary
    if without is not None and without < summary.bubble_share:
        yield (
            f"it would be {percent(without)} only if no stage waits for the others at the accumulation boundary, as"
            " clipping by the global gradient norm and the check for overflow make it"
        )
    yield took
    yield from _pace(report)
    yield _held(report)
    if report.fewest is not None and report.max_bubble is not None:
        fewest = report.fewest.micro_batches
        yield (
            f"{_counted(fewest, 'micro-batch is', 'micro-batches are')} the fewest that keep the bubble at"
            f" {percent(report.max_bubble)} or below"
        )
    if report.recut is not None:
        yield _recut_sentence(report, report.recut)
    if summary.timeline is None:
        yield f"{count_text(shape.micro_batches)} micro-batches are too many to draw: these numbers are by formula"


def _pace(report: ScheduleReport) -> Iterator[str]:
    """Which stage the others wait for, and what the bubble would be if they were alike."""
    work = report.summary.times.per_micro_batch
    slowest, mean = max(work), sum(work, Fraction(0)) / len(work)
    if slowest == min(work):
        return
    shape = report.summary.shape
    stages = [str(stage) for stage, time in enumerate(work) if time == slowest]
    subject = f"stage {stages[0]} sets" if len(stages) == 1 else f"stages {listed(stages)} set"
    yield (
        f"{subject} the pace, {percent(slowest / mean - 1)} above the mean: with any number of micro-batches the bubble"
        f" is at least {percent(1 - mean / slowest)}"
    )
    if shape.schedule in ("gpipe", "1f1b", "interleaved"):
        from ds_accum.plan.pipeline import bubble_share

        equal = bubble_share(shape.stages, shape.micro_batches, shape.virtual_stages)
        yield f"with equal stages the bubble would be {percent(equal)}"


def _held(report: ScheduleReport) -> str:
    stages = report.summary.stages
    if report.activation_bytes is None:
        most = max(stage.in_flight for stage in stages)
        number = next(number for number, stage in enumerate(stages) if stage.in_flight == most)
        held = f"the activations of {_number(most)} micro-batch{'es' * (most != 1)} at once"
        if all(stage.in_flight == most for stage in stages):
            return f"{'every stage' if len(stages) > 1 else 'the stage'} holds {held}"
        return f"stage {number} holds the most: {held}"
    sizes = [
        activation_bytes(stage.in_flight, size) for stage, size in zip(stages, report.activation_bytes, strict=True)
    ]
    number = sizes.index(max(sizes))
    return (
        f"stage {number} holds the most activations, {bytes_text(sizes[number])}: micro-batches in flight"
        f" {_number(stages[number].in_flight)} x {bytes_text(report.activation_bytes[number])}"
    )


def _recut_sentence(report: ScheduleReport, recut: Recut) -> str:
    if recut.cut.layers == recut.layers:
        return f"the layers are cut where they should be: {listed(list(map(str, recut.layers)), most=9)}"
    gain = 1 - recut.summary.step_time / report.summary.step_time
    change = f"{percent(abs(gain))} {'less' if gain >= 0 else 'more'}"
    return (
        f"cut into {listed(list(map(str, recut.cut.layers)), most=9)} layers, a step takes"
        f" {_time(report, recut.summary.step_time)}, {change}, and the bubble is {percent(recut.summary.bubble_share)}"
    )


# ------------------------------------------------------------------------------------------------------------- sections


def _sections(report: ScheduleReport, width: int, blocks: bool) -> Iterator[Section]:
    timeline = report.summary.timeline
    unit = "seconds" if report.in_seconds else "forwards"
    if timeline is not None:
        yield Section(
            title="Timeline",
            figure=timeline_svg(timeline, unit=unit),
            figure_text=timeline_text(timeline, width=width, blocks=blocks),
        )
    yield Section(title="Stages", table=_stages_table(report))
    if report.recut is not None and report.recut.cut.layers != report.recut.layers:
        yield Section(
            title="Where to cut the layers",
            paragraphs=("A layer that moves is taken to cost what the layers of its new stage cost now.",),
            table=_cut_table(report, report.recut),
        )
    if report.others:
        yield Section(title="All schedules", table=_others_table(report))


def _stages_table(report: ScheduleReport) -> Table:
    summary = report.summary
    headings = ["stage", "forward", "backward", "computes", "waits", "waits, %", "in flight"]
    if report.activation_bytes is not None:
        headings.append("activations")
    rows = []
    for number, stage in enumerate(summary.stages):
        row = [
            str(number),
            _short(report, summary.times.forward[number]),
            _short(report, summary.times.backward[number]),
            _short(report, stage.computing),
            _short(report, stage.waiting),
            f"{float(stage.waiting / summary.step_time) * 100:.3g}",
            _number(stage.in_flight),
        ]
        if report.activation_bytes is not None:
            row.append(bytes_text(activation_bytes(stage.in_flight, report.activation_bytes[number])))
        rows.append(tuple(row))
    note = (
        "forward and backward of one micro-batch; in flight: the most micro-batches whose activations are held at once"
    )
    if not report.in_seconds:
        note = f"times in forwards of a stage; {note}"
    return Table(headings=tuple(headings), rows=_most_rows(rows), note=note)


# A page of a hundred thousand rows opens in no browser; json has them all.
_MOST_ROWS = 256


def _most_rows(rows: list[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    if len(rows) <= _MOST_ROWS:
        return tuple(rows)
    half = _MOST_ROWS // 2
    left_out = (f"{len(rows) - 2 * half} more", *("" for _ in rows[0][1:]))
    return (*rows[:half], left_out, *rows[-half:])


def _cut_table(report: ScheduleReport, recut: Recut) -> Table:
    return Table(
        headings=("stage", "layers now", "time now", "layers", "time"),
        rows=_most_rows(
            [
                (str(stage), str(now), _short(report, before), str(count), _short(report, load))
                for stage, (now, before, count, load) in enumerate(
                    zip(
                        recut.layers,
                        report.summary.times.per_micro_batch,
                        recut.cut.layers,
                        recut.cut.loads,
                        strict=True,
                    )
                )
            ]
        ),
        note="time: forward and backward of one micro-batch",
    )


def _others_table(report: ScheduleReport) -> Table:
    rows, refused = [], []
    for outcome in report.others:
        summary = outcome.summary
        if summary is None:
            refused.append(f"{outcome.schedule}: {outcome.refusal}")
            continue
        most = max(stage.in_flight for stage in summary.stages)
        row = [
            outcome.schedule,
            str(summary.shape.virtual_stages),
            percent(summary.bubble_share),
            _short(report, summary.step_time),
            _number(most),
        ]
        if report.activation_bytes is not None:
            sizes = zip(summary.stages, report.activation_bytes, strict=True)
            row.append(bytes_text(max(activation_bytes(stage.in_flight, size) for stage, size in sizes)))
        rows.append(tuple(row))
    headings = ["schedule", "chunks", "bubble", "step", "in flight"]
    if report.activation_bytes is not None:
        headings.append("activations")
    return Table(headings=tuple(headings), rows=tuple(rows), note="; ".join(refused))


# -------------------------------------------------------------------------------------------------------------- numbers


def _time(report: ScheduleReport, time: Fraction) -> str:
    return seconds_text(float(time)) if report.in_seconds else f"{_number(time)} forwards of a stage"


def _short(report: ScheduleReport, time: Fraction) -> str:
    return seconds_text(float(time)) if report.in_seconds else _number(time)


def _number(value: Fraction) -> str:
    """A count with every digit, else four digits that matter."""
    return count_text(int(value)) if value.denominator == 1 else f"{float(value):,.4g}"


def _fraction(share: Fraction) -> str:
    """ "(3/11)", where it is short enough to be recognized."""
    return f" ({share})" if 1 < share.denominator < 1000 else ""


def _counted(number: int, one: str, many: str) -> str:
    return f"{count_text(number)} {one if number == 1 else many}"
