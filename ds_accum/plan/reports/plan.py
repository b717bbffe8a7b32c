"""A plan as a document: the winner explained, the layouts behind it, what was dropped, and all that was assumed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from ds_accum.batch.wording import show_list
from ds_accum.plan.cost import PARTS, TimePart
from ds_accum.plan.ds_config import beyond_the_config, launch_degrees
from ds_accum.plan.layouts import RefusedDegree
from ds_accum.plan.planned import Dropped, Miss, Plan, PlannedLayout, Reason
from ds_accum.plan.reasons import Advantage, advantage_over
from ds_accum.plan.remedies import Remedy
from ds_accum.plan.targets import nearest_batches
from ds_accum.plan.training import TrainingSetup
from ds_accum.reporting import Document, Section, Table, bytes_text, count_text, seconds_text

__all__ = ["plan_document"]

_PART_NAMES: dict[TimePart, str] = {
    "compute": "compute",
    "recompute": "recompute",
    "bubble": "bubble",
    "tensor_parallel": "tensor parallel",
    "sequence_parallel": "sequence and context parallel",
    "expert_parallel": "expert parallel",
    "pipeline_transfers": "pipeline transfers",
    "data_parallel": "data parallel",
    "update": "update",
}
_DROPPED: dict[Reason, str] = {
    "memory": "more memory than a GPU has",
    "host memory": "more memory than the host has",
    "bubble": "a larger bubble than allowed",
    "batch": "data parallel does not divide the batch",
    "layout": "the model can't be cut like this",
}


def plan_document(plan: Plan, *, notes: tuple[str, ...] = (), remedies: tuple[Remedy, ...] = ()) -> Document:
    """The report. `notes` are said after the lead; `remedies` where nothing fits."""
    title = f"{plan.shape.name} on {plan.world_size} x {plan.hardware.name}"
    asked = (
        f"{count_text(plan.global_batch_size)} samples of {count_text(plan.sequence_length)} tokens a step,"
        f" {count_text(plan.tokens_per_step)} tokens; {_billions(plan.shape.parameters)} parameters."
    )
    if not plan.layouts:
        return Document(
            title=title,
            lead=(f"Nothing fits: none of {count_text(plan.considered)} layouts.", asked, *_nearest(plan), *notes),
            sections=tuple(_when_nothing_fits(plan, remedies)),
        )
    return Document(title=title, lead=(_verdict(plan), asked, *_tight(plan), *notes), sections=tuple(_sections(plan)))


def _verdict(plan: Plan) -> str:
    best = plan.layouts[0]
    return (
        f"Best of {count_text(plan.fitting)} layouts that fit, of {count_text(plan.considered)} legal ones:"
        f" {_degrees(best)}, {_way(best.training)}, micro batch {best.ledger.micro_batch_size}, accumulation"
        f" {best.ledger.gradient_accumulation_steps}: {seconds_text(best.step.step_seconds)} a step,"
        f" {count_text(round(best.tokens_per_second))} tokens a second, {plan.model_flops_share(best):.0%} of peak."
    ).replace("%", " %")


# Above this share of the memory a layout stands or falls with the estimate's error.
_TIGHT = 0.95


def _tight(plan: Plan) -> Iterator[str]:
    best, there = plan.layouts[0], plan.hardware.memory_bytes
    share = best.memory.peak_bytes / there
    if share <= _TIGHT:
        return
    filled = f"{bytes_text(best.memory.peak_bytes)} of {bytes_text(there)}"
    said = f"It fills {filled}, by an estimate that may be a few percent off"
    roomy = next((other for other in plan.layouts if other.memory.peak_bytes <= _TIGHT * there), None)
    if roomy is not None:
        slower = 1 - best.step.step_seconds / roomy.step.step_seconds
        needed = bytes_text(roomy.memory.peak_bytes)
        said += f"; layout {_number(plan, roomy)} needs {needed} and is {_percent(slower)} slower"
    yield f"{said}."


def _sections(plan: Plan) -> Iterator[Section]:
    yield Section(title="Layouts, best first", paragraphs=(), table=_layouts(plan, plan.layouts))
    if len(plan.layouts) > 1:
        yield Section(title="Why each is ahead of the next", paragraphs=tuple(_reasons(plan.layouts)))
    others = [split for split in plan.splits if split not in plan.layouts]
    if others:
        table = replace(_layouts(plan, tuple(others)), note="")
        yield Section(title="The best of other ways to divide the GPUs", table=table)
    best = plan.layouts[0]
    yield Section(
        title="Layout 1: the batch",
        paragraphs=(f"{_sentence(best.ledger.describe())}", f"{_sentence(best.layout.describe())}"),
    )
    yield Section(title="Layout 1: a step", table=_time(best))
    yield Section(
        title="Layout 1: the memory of the fullest GPU", paragraphs=_memory_words(plan, best), table=_memory(best)
    )
    if best.communication.transfers:
        yield Section(title="Layout 1: what a GPU sends in a step", table=_transfers(best))
    yield Section(title="Layout 1: to launch it", paragraphs=tuple(_launch(best)))
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
        ("ZeRO", [_stage(planned.training) for planned in layouts]),
        ("recomp", [planned.training.recompute.replace("selective", "select") for planned in layouts]),
        ("micro", [str(planned.ledger.micro_batch_size) for planned in layouts]),
        ("accum", [str(planned.ledger.gradient_accumulation_steps) for planned in layouts]),
        ("memory", [bytes_text(planned.memory.peak_bytes) for planned in layouts]),
        ("bubble", [_percent(planned.bubble_share) for planned in layouts]),
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
        (_PART_NAMES[part], seconds_text(seconds), _percent(seconds / total))
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
    moment = {
        "activations": "when the last forward ends",
        "reduction": "when the backward ends",
        "conversion": "when gradients are turned into the optimizer's dtype",
        "update": "when the optimizer runs",
    }[fullest.fullest_moment]
    where = f" of stage {fullest.stage}" if planned.layout.pipeline_parallel_size > 1 else ""
    said = f"{bytes_text(need)} of {bytes_text(there)} ({_percent(need / there)}){where}, fullest {moment}."
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
        (_DROPPED[item.reason], count_text(item.count), _other_batches(plan) if item.reason == "batch" else _miss(item))
        for item in plan.dropped
    ]
    return Table(headings=("why", "layouts", "nearest miss"), rows=tuple(rows), words=frozenset({0, 2}))


# --- words ------------------------------------------------------------------------------------------------------------


def _reasons(layouts: tuple[PlannedLayout, ...]) -> Iterator[str]:
    for number, (first, other) in enumerate(pairwise(layouts), start=1):
        yield f"{number} over {number + 1}: {_reason(first, other, advantage_over(first, other))}."


def _reason(first: PlannedLayout, other: PlannedLayout, advantage: Advantage) -> str:
    if not advantage.seconds:
        return f"as fast, with the simpler set-up: {_way(first.training)} over {_way(other.training)}"
    # What is below a twentieth of the difference explains nothing.
    least = advantage.seconds / 20
    saved = [
        f"{seconds_text(seconds)} less {_PART_NAMES[part]}" for part, seconds in advantage.saved if seconds > least
    ]
    spent = [
        f"{seconds_text(seconds)} more {_PART_NAMES[part]}" for part, seconds in advantage.spent if seconds > least
    ]
    said = f"{_percent(advantage.share)} faster, {show_list(saved, last=' and ')}"
    return f"{said}, for {show_list(spent, last=' and ')}" if spent else said


def _launch(planned: PlannedLayout) -> Iterator[str]:
    yield f"Written with --write, the config is checked by `ds-accum lint ds_config.json {launch_degrees(planned)}`."
    beyond = beyond_the_config(planned)
    if beyond:
        yield f"What no config says: {'; '.join(beyond)}."


def _refused(refused: tuple[RefusedDegree, ...]) -> Iterator[str]:
    if not refused:
        return
    said = [
        f"{item.degree} {_sizes(item.sizes)}: {item.reason}"
        for item in refused
        # A limit that was asked for, or is the default, is no news.
        if "the limit" not in item.reason
    ]
    if said:
        yield f"Degrees that divide the GPUs but can't be: {'; '.join(said)}."


def _sizes(sizes: tuple[int, ...]) -> str:
    return show_list([str(size) for size in sizes]) if len(sizes) <= 3 else f"{sizes[0]} to {sizes[-1]}"


def _remedy(remedy: Remedy) -> str:
    best = remedy.best
    return (
        f"{_sentence(remedy.change)[:-1]}: {_degrees(best)}, {_way(best.training)}, micro batch"
        f" {best.ledger.micro_batch_size}, {seconds_text(best.step.step_seconds)} a step."
    )


def _nearest(plan: Plan) -> Iterator[str]:
    for item in plan.dropped:
        if item.nearest is not None:
            yield f"Nearest by {item.reason}: {_miss(item)}."


def _miss(item: Dropped) -> str:
    miss = item.nearest
    if miss is None:
        return ""
    if item.reason == "bubble":
        return f"{_percent(miss.needed)}, where {_percent(miss.available)} are allowed: {_missed(miss)}"
    more = _percent(miss.factor - 1)
    where = " a node" if item.reason == "host memory" else ""
    return f"{bytes_text(miss.needed)} of {bytes_text(miss.available)}{where}, {more} too much: {_missed(miss)}"


def _other_batches(plan: Plan) -> str:
    """For the widest data parallelism that the batch rules out, the batches next to it that do not."""
    widest = plan.uneven_data_parallel_sizes[-1]
    near = nearest_batches(plan.global_batch_size, (widest,))
    said = show_list([count_text(batch) for batch in near if batch is not None])
    return f"data parallel {widest} divides {said}"


def _missed(miss: Miss) -> str:
    degrees = _product(miss.layout.describe())
    return f"{degrees}, {_way(miss.training)}, micro batch {miss.ledger.micro_batch_size}"


def _degrees(planned: PlannedLayout) -> str:
    return _product(planned.layout.describe())


def _product(equation: str) -> str:
    """ "world 64 / (tensor 2 x pipeline 4) = data parallel 8" as "tensor 2 x pipeline 4 x data parallel 8"."""
    stages, _, experts = equation.partition("; ")
    left, _, right = stages.partition(" = ")
    _, _, divisors = left.partition(" / ")
    said = " x ".join(filter(None, (divisors.strip("()"), right)))
    if experts:
        said += f", {experts.partition(' / ')[2].partition(' = ')[0].strip('()')}"
    return said


def _way(training: TrainingSetup) -> str:
    said = f"ZeRO {training.zero_stage}"
    if training.offload_optimizer != "none":
        said += " with all on the host" if training.offload_parameters != "none" else " with its states on the host"
    return said if training.recompute == "none" else f"{said}, {training.recompute} recompute"


def _stage(training: TrainingSetup) -> str:
    offloaded = (training.offload_optimizer, training.offload_parameters)
    return f"{training.zero_stage}{'+' * sum(place != 'none' for place in offloaded)}"


def _number(plan: Plan, planned: PlannedLayout) -> str:
    return str(plan.layouts.index(planned) + 1) if planned in plan.layouts else "-"


def _assumed(plan: Plan) -> tuple[str, ...]:
    said, hardware = plan.assumptions, plan.hardware
    ports = "1 network port" if said.ports_of_a_ring == 1 else f"{said.ports_of_a_ring} network ports"
    software = (
        f"Software gets {_percent(said.compute_share_of_peak)} of peak in matrix multiplication,"
        f" {_percent(said.memory_share_of_peak)} of the memory's speed and {_percent(said.link_share_of_peak)} of a"
        f" link's; {_percent(said.overlapped_share)} of what can overlap does; a ring uses {ports} of a node."
    )
    links = (
        f"{hardware.name}: {bytes_text(hardware.memory_bytes)} ({hardware.memory_bytes / 2**30:.4g} GiB),"
        f" {hardware.gpus_per_node} a node,"
        f" {bytes_text(hardware.intra_node_bytes_per_second)}/s within and"
        f" {bytes_text(hardware.inter_node_bytes_per_second)}/s between nodes, a GPU and one way."
    )
    order = (
        "Times put layouts in order; they are no promises. Sixteen published runs on A100 were met within a quarter."
    )
    return software, links, order


def _percent(share: float) -> str:
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 10 or percent == round(percent) else f"{percent:.2g} %"


def _billions(parameters: int) -> str:
    if parameters >= 10**9:
        return f"{parameters / 10**9:,.1f} billion"
    return f"{parameters / 10**6:,.0f} million"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
