"""A plan as a document: the winner explained, the layouts behind it, what was dropped, and all that was assumed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from ds_accum.batch.wording import show_list
from ds_accum.plan.cost import PARTS
from ds_accum.plan.ds_config import beyond_the_config, launch_degrees
from ds_accum.plan.layouts import RefusedDegree
from ds_accum.plan.memory import MOMENTS
from ds_accum.plan.planned import Plan, PlannedLayout
from ds_accum.plan.reasons import advantage_over
from ds_accum.plan.remedies import Remedy
from ds_accum.plan.reports.plan_words import (
    DROPPED_BECAUSE,
    PART_NAMES,
    advantage_words,
    degrees_words,
    miss_words,
    parameters_text,
    percent_text,
    sentence,
    sizes_words,
    stage_words,
    training_words,
    way_words,
)
from ds_accum.plan.targets import nearest_batches
from ds_accum.reporting import Document, Section, Table, bytes_text, count_text, seconds_text

__all__ = ["plan_document"]


def plan_document(
    plan: Plan,
    *,
    notes: tuple[str, ...] = (),
    remedies: tuple[Remedy, ...] = (),
    shown: int = 1,
    config_name: str = "ds_config.json",
    model_name: str | None = None,
) -> Document:
    """The report. `notes` are said after the lead; `remedies` where nothing fits.

    Layout `shown`, from 1, is told in full; the commands to go on with name its config and the model like this.
    """
    title = f"{plan.shape.name} on {plan.world_size} x {plan.hardware.name}"
    asked = (
        f"{count_text(plan.global_batch_size)} samples of {count_text(plan.sequence_length)} tokens a step,"
        f" {count_text(plan.tokens_per_step)} tokens; {parameters_text(plan.shape.parameters)} parameters"
    )
    if not plan.layouts:
        return Document(
            title=title,
            lead=(f"nothing fits: none of {count_text(plan.considered)} layouts", asked, *_nearest(plan), *notes),
            sections=tuple(_when_nothing_fits(plan, remedies)),
        )
    return Document(
        title=title,
        lead=(_verdict(plan), asked, *_tight(plan), *notes),
        sections=tuple(_sections(plan, shown, config_name, model_name or plan.shape.name)),
    )


def _verdict(plan: Plan) -> str:
    best = plan.layouts[0]
    ledger = best.ledger
    return (
        f"best of {count_text(plan.fitting)} layouts that fit, of {count_text(plan.considered)} legal ones:"
        f" {degrees_words(best.layout)}, {way_words(best.training)}, micro batch {ledger.micro_batch_size},"
        f" accumulation {ledger.gradient_accumulation_steps}: {seconds_text(best.step.step_seconds)} a step,"
        f" {count_text(round(best.tokens_per_second))} tokens a second,"
        f" {percent_text(plan.model_flops_share(best))} of peak"
    )


# Above this share of the memory a layout stands or falls with the estimate's error.
_TIGHT = 0.95


def _tight(plan: Plan) -> Iterator[str]:
    best, there = plan.layouts[0], plan.hardware.memory_bytes
    share = best.memory.peak_bytes / there
    if share <= _TIGHT:
        return
    filled = f"{bytes_text(best.memory.peak_bytes)} of {bytes_text(there)}"
    said = f"it fills {filled}, by an estimate that may be a few percent off"
    roomy = next((other for other in plan.layouts if other.memory.peak_bytes <= _TIGHT * there), None)
    if roomy is not None:
        slower = 1 - best.step.step_seconds / roomy.step.step_seconds
        needed = bytes_text(roomy.memory.peak_bytes)
        said += f"; layout {_number(plan, roomy)} needs {needed} and is {percent_text(slower)} slower"
    yield said


def _sections(plan: Plan, shown: int, config_name: str, model_name: str) -> Iterator[Section]:
    yield Section(title="Layouts, best first", paragraphs=(), table=_layouts(plan, plan.layouts))
    if len(plan.layouts) > 1:
        yield Section(title="Why each is ahead of the next", paragraphs=tuple(_reasons(plan.layouts)))
    others = [split for split in plan.splits if split not in plan.layouts]
    if others:
        table = replace(_layouts(plan, tuple(others)), note="")
        yield Section(title="The best of other ways to divide the GPUs", table=table)
    planned, name = plan.layouts[shown - 1], f"Layout {shown}"
    yield Section(
        title=f"{name}: the batch",
        paragraphs=(f"{sentence(planned.ledger.describe())}", f"{sentence(planned.layout.describe())}"),
    )
    yield Section(title=f"{name}: a step", table=_time(planned))
    yield Section(
        title=f"{name}: the memory of the fullest GPU",
        paragraphs=_memory_words(plan, planned),
        table=_memory(planned),
    )
    if planned.communication.transfers:
        yield Section(title=f"{name}: what a GPU sends in a step", table=_transfers(planned))
    yield _launch(planned, name, config_name, model_name)
    if plan.dropped or plan.refused:
        yield Section(title="What was dropped", paragraphs=tuple(_refused(plan.refused)), table=_drops(plan))
    yield Section(title="Assumed", paragraphs=_assumed(plan))


def _when_nothing_fits(plan: Plan, remedies: tuple[Remedy, ...]) -> Iterator[Section]:
    helping = tuple(_remedy(remedy) for remedy in remedies)
    yield Section(title="What would help", paragraphs=helping or ("No single change that was tried.",))
    yield Section(title="What was dropped", paragraphs=tuple(_refused(plan.refused)), table=_drops(plan))
    yield Section(title="Assumed", paragraphs=_assumed(plan))


# --- tables -----------------------------------------------------------------------------------------------------------


def _layouts(plan: Plan, layouts: tuple[PlannedLayout, ...]) -> Table:
    """Columns in which every row is 1, or none, are left out; so is what is sent if a terminal has no room for it."""
    degrees = [
        ("TP", [planned.layout.tensor_parallel_size for planned in layouts]),
        ("PP", [planned.layout.pipeline_parallel_size for planned in layouts]),
        ("CP", [planned.layout.context_parallel_size for planned in layouts]),
        ("SP", [planned.layout.sequence_parallel_size for planned in layouts]),
        ("EP", [planned.layout.expert_parallel_size for planned in layouts]),
    ]
    columns = [
        ("", [_number(plan, planned) for planned in layouts]),
        *((name, [str(size) for size in sizes]) for name, sizes in degrees if max(sizes) > 1),
        ("DP", [str(planned.layout.data_parallel_size) for planned in layouts]),
        ("ZeRO", [stage_words(planned.training) for planned in layouts]),
        ("recomp", [planned.training.recompute.replace("selective", "select") for planned in layouts]),
        ("micro", [str(planned.ledger.micro_batch_size) for planned in layouts]),
        ("accum", [str(planned.ledger.gradient_accumulation_steps) for planned in layouts]),
        ("memory", [bytes_text(planned.memory.peak_bytes) for planned in layouts]),
        ("bubble", [percent_text(planned.bubble_share) for planned in layouts]),
        ("sent", [bytes_text(planned.communication.sent_bytes) for planned in layouts]),
        ("step", [seconds_text(planned.step.step_seconds) for planned in layouts]),
    ]
    idle = {"recomp": {"none"}, "bubble": {"0 %"}}
    columns = [(name, cells) for name, cells in columns if not set(cells) <= idle.get(name, set())]
    if sum(max(map(len, (name, *cells))) + 2 for name, cells in columns) - 2 > _COLUMNS:
        columns = [column for column in columns if column[0] != "sent"]
    return Table(
        headings=tuple(name for name, _ in columns),
        rows=tuple(zip(*(cells for _, cells in columns), strict=True)),
        note=_legend(layouts, {name for name, _ in columns}),
    )


# Of a terminal that nobody has made wider.
_COLUMNS = 80


def _legend(layouts: tuple[PlannedLayout, ...], columns: set[str]) -> str:
    said = "micro: samples of a forward; accum: micro-batches of a step"
    if "bubble" in columns:
        said += "; bubble: idle share of the pipeline's own time"
    if "sent" in columns:
        said += "; sent: bytes by one GPU in a step"
    if "recomp" in columns:
        said += "; recomp: activation recompute"
    if any(planned.training.offload_optimizer != "none" for planned in layouts):
        said += "; +: optimizer states on the host"
    if any(planned.training.offload_parameters != "none" for planned in layouts):
        said += "; ++: parameters too"
    return f"{said}."


def _time(planned: PlannedLayout) -> Table:
    total = planned.step.step_seconds
    rows = [
        (PART_NAMES[part], seconds_text(seconds), percent_text(seconds / total))
        for part in PARTS
        if (seconds := planned.step.part_seconds(part)) > 0
    ]
    stage = ""
    if planned.layout.pipeline_parallel_size > 1:
        stage = f" of stage {planned.step.pipeline_stage}, the slowest"
    return Table(headings=("part", f"time{stage}", "share"), rows=(*rows, ("step", seconds_text(total), "100 %")))


def _memory_words(plan: Plan, planned: PlannedLayout) -> tuple[str, ...]:
    need, there = planned.memory.peak_bytes, plan.hardware.memory_bytes
    fullest = planned.memory.fullest
    moment = MOMENTS[fullest.fullest_moment]
    where = f" of stage {fullest.stage}" if planned.layout.pipeline_parallel_size > 1 else ""
    said = f"{bytes_text(need)} of {bytes_text(there)} ({percent_text(need / there)}){where}, fullest {moment}."
    if planned.memory.host_bytes:
        node = planned.memory.host_bytes * min(plan.hardware.gpus_per_node, plan.world_size)
        said += f" On the host {bytes_text(planned.memory.host_bytes)} a GPU, {bytes_text(node)} a node."
    return (said,)


def _memory(planned: PlannedLayout) -> Table:
    fullest = planned.memory.fullest
    rows = [
        (line.name, bytes_text(line.bytes), line.formula)
        for line in fullest.lines
        if line.place == "device" and fullest.fullest_moment in line.moments and line.bytes
    ]
    return Table(headings=("part", "bytes", "formula"), rows=tuple(rows), words=frozenset({0, 2}))


def _transfers(planned: PlannedLayout) -> Table:
    rows = [
        (
            f"{transfer.name}, {transfer.kind}",
            transfer.group,
            count_text(transfer.times),
            bytes_text(transfer.bytes_each),
            bytes_text(transfer.sent_bytes),
        )
        for transfer in planned.communication.transfers
    ]
    total = ("together", "", "", "", bytes_text(planned.communication.sent_bytes))
    return Table(headings=("what", "group", "calls", "each", "sent"), rows=(*rows, total), words=frozenset({0, 1}))


def _drops(plan: Plan) -> Table | None:
    if not plan.dropped:
        return None
    rows = [
        (
            DROPPED_BECAUSE[item.reason],
            count_text(item.count),
            _other_batches(plan) if item.reason == "batch" else miss_words(item),
        )
        for item in plan.dropped
    ]
    return Table(headings=("why", "layouts", "nearest miss"), rows=tuple(rows), words=frozenset({0, 2}))


# --- words ------------------------------------------------------------------------------------------------------------


def _reasons(layouts: tuple[PlannedLayout, ...]) -> Iterator[str]:
    for number, (first, other) in enumerate(pairwise(layouts), start=1):
        yield f"{number} over {number + 1}: {advantage_words(first, other, advantage_over(first, other))}."


def _launch(planned: PlannedLayout, name: str, config_name: str, model_name: str) -> Section:
    """The commands to go on with, and what none of them can say."""
    launch = launch_degrees(planned)
    known = f"--model {model_name} --seq-len {planned.training.sequence_length}"
    recompute = "" if planned.training.recompute == "none" else f" --recompute {planned.training.recompute}"
    beyond = beyond_the_config(planned)
    return Section(
        title=f"{name}: to launch it",
        paragraphs=(
            f"--write writes its config, `ds-accum lint {config_name} {launch}` checks it.",
            f"`ds-accum ledger {config_name} {launch} {known}` accounts for a step.",
            f"`ds-accum memory {config_name} {launch} {known}{recompute}` accounts for the memory.",
            *((f"What no config says: {'; '.join(beyond)}.",) if beyond else ()),
        ),
    )


def _refused(refused: tuple[RefusedDegree, ...]) -> Iterator[str]:
    if not refused:
        return
    said = [
        f"{item.degree} {sizes_words(item.sizes)}: {item.reason}"
        for item in refused
        # A limit that was asked for, or is the default, is no news.
        if "the limit" not in item.reason
    ]
    if said:
        yield f"Degrees that divide the GPUs but can't be: {'; '.join(said)}."


def _remedy(remedy: Remedy) -> str:
    best = remedy.best
    return (
        f"{sentence(remedy.change)[:-1]}: {degrees_words(best.layout)}, {way_words(best.training)}, micro batch"
        f" {best.ledger.micro_batch_size}, {seconds_text(best.step.step_seconds)} a step."
    )


def _nearest(plan: Plan) -> Iterator[str]:
    for item in plan.dropped:
        if item.nearest is not None:
            yield f"nearest by {item.reason}: {miss_words(item)}"


def _other_batches(plan: Plan) -> str:
    """For the widest data parallelism that the batch rules out, the batches next to it that do not."""
    widest = plan.uneven_data_parallel_sizes[-1]
    near = nearest_batches(plan.global_batch_size, (widest,))
    said = show_list([count_text(batch) for batch in near if batch is not None])
    return f"data parallel {widest} divides {said}"


def _number(plan: Plan, planned: PlannedLayout) -> str:
    return str(plan.layouts.index(planned) + 1) if planned in plan.layouts else "-"


def _assumed(plan: Plan) -> tuple[str, ...]:
    said, hardware = plan.assumptions, plan.hardware
    ports = "1 network port" if said.ports_of_a_ring == 1 else f"{said.ports_of_a_ring} network ports"
    software = (
        f"Software gets {percent_text(said.compute_share_of_peak)} of peak in matrix multiplication,"
        f" {percent_text(said.memory_share_of_peak)} of the memory's speed and"
        f" {percent_text(said.link_share_of_peak)} of a link's; {percent_text(said.overlapped_share)} of what can"
        f" overlap does; a ring uses {ports} of a node."
    )
    links = (
        f"{hardware.name}: {bytes_text(hardware.memory_bytes)} ({hardware.memory_bytes / 2**30:.4g} GiB),"
        f" {hardware.gpus_per_node} a node,"
        f" {bytes_text(hardware.intra_node_bytes_per_second)}/s within and"
        f" {bytes_text(hardware.inter_node_bytes_per_second)}/s between nodes, a GPU and one way."
    )
    order = (
        "Times put layouts in order and promise nothing: the shares are fitted to sixteen published runs on A100s,"
        " which they meet within a quarter."
    )
    training = f"{training_words(plan.training)}; the interleaved schedule is not tried"
    return sentence(training), software, links, order
