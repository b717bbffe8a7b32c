"""An estimate of memory as a document: does it fit, which part takes what at which moment, and by which formula."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from ds_accum.plan.memory import MOMENTS, Line, MemoryEstimate, Moment, Part, StageMemory
from ds_accum.plan.reports.plan_words import sentence, training_words
from ds_accum.plan.training import TrainingSetup
from ds_accum.reporting import Document, Section, Table, bytes_text, plain

__all__ = ["memory_document", "memory_json"]

# As headings.
_MOMENTS: dict[Moment, str] = {
    "loss": "loss",
    "backward": "backward",
    "reduction": "reduce",
    "conversion": "convert",
    "update": "update",
}
_PLACES = {"host": "in the host's memory", "nvme": "on NVMe"}


def memory_document(
    estimate: MemoryEstimate, *, gpu_bytes: int | None = None, all_stages: bool = False, notes: tuple[str, ...] = ()
) -> Document:
    """The report. `gpu_bytes` is what a GPU has; with `all_stages` there is a table of the pipeline's stages."""
    sections = [_parts(estimate.fullest)]
    if all_stages:
        sections.append(_stages(estimate))
    sections += _lines(estimate.fullest)
    sections.append(Section(title="Assumed", paragraphs=(_assumed(estimate.training),)))
    return Document(
        title=f"Memory of one rank: {estimate.shape.name}, {estimate.shape.parameters:,} parameters",
        lead=(*_lead(estimate, gpu_bytes), *notes),
        sections=tuple(sections),
    )


def memory_json(
    estimate: MemoryEstimate, *, gpu_bytes: int | None = None, notes: tuple[str, ...] = ()
) -> Mapping[str, object]:
    """The same for a program, every number in bytes."""
    value: dict[str, Any] = {
        "version": 1,
        "model": estimate.shape.name,
        "parameters": estimate.shape.parameters,
        "layout": plain(estimate.layout),
        "training": plain(estimate.training),
        "peak_bytes": estimate.peak_bytes,
        "host_bytes": estimate.host_bytes,
        "nvme_bytes": estimate.nvme_bytes,
        "gpu_bytes": gpu_bytes,
        "fits": None if gpu_bytes is None else estimate.peak_bytes <= gpu_bytes,
        "fullest_stage": estimate.fullest.stage,
        "stages": [_stage_json(stage) for stage in estimate.stages],
        "notes": list(notes),
    }
    return value


def _stage_json(stage: StageMemory) -> dict[str, object]:
    return {
        "stage": stage.stage,
        "num_layers": stage.num_layers,
        "forwards_in_flight": stage.forwards_in_flight,
        "device_bytes": stage.device_bytes,
        "host_bytes": stage.host_bytes,
        "nvme_bytes": stage.nvme_bytes,
        "fullest_moment": stage.fullest_moment,
        "bytes_by_moment": {moment: stage.bytes_at(moment) for moment in _MOMENTS},
        "lines": [
            {
                "part": line.part,
                "name": line.name,
                "bytes": line.bytes,
                "place": line.place,
                "moments": list(line.moments),
                "formula": line.formula,
                "source": line.source,
            }
            for line in stage.lines
        ],
    }


def _assumed(training: TrainingSetup) -> str:
    """What the numbers stand or fall with."""
    recompute = "nothing is recomputed" if training.recompute == "none" else f"{training.recompute} recompute"
    said = sentence(f"{training_words(training)}, {recompute}")
    if training.fused_kernels:
        said += " Models of transformers keep more: --kernels plain."
    return said


def _lead(estimate: MemoryEstimate, gpu_bytes: int | None) -> Iterator[str]:
    stage, peak = estimate.fullest, estimate.peak_bytes
    needs = f"{_both(peak)} on its GPU, {MOMENTS[stage.fullest_moment]}"
    if estimate.layout.pipeline_parallel_size > 1:
        needs += f", on pipeline stage {stage.stage}, the fullest of {estimate.layout.pipeline_parallel_size}"
    yield f"a rank needs {needs}"
    if gpu_bytes is not None:
        left = gpu_bytes - peak
        verdict = f"it fits, with {_both(left)} to spare" if left >= 0 else f"it does not fit: {_both(-left)} too much"
        yield f"of {_both(gpu_bytes)}, {verdict}"
    for place, amount in (("host", estimate.host_bytes), ("nvme", estimate.nvme_bytes)):
        if amount:
            yield f"a rank needs {_both(amount)} {_PLACES[place]}"
    yield estimate.layout.describe()
    margin = next(line for line in stage.lines if line.part == "margin")
    yield f"{bytes_text(margin.bytes)} of it are a margin, {margin.source}"


def _parts(stage: StageMemory) -> Section:
    rows = []
    for part in get_args(Part):
        amounts = [stage.part_bytes(part, moment) for moment in _MOMENTS]
        if any(amounts):
            rows.append((part, *map(_size, amounts)))
    rows.append(("together", *(_size(stage.bytes_at(moment)) for moment in _MOMENTS)))
    return Section(
        title="By part, at the five moments of a step at which a GPU can be fullest",
        table=Table(
            headings=("part", *_MOMENTS.values()),
            rows=tuple(rows),
            note="loss: the end of the forward; backward: in the last layer's; reduce: at its end; convert: gradients"
            " into the optimizer's dtype; GB are 10^9 bytes",
        ),
    )


def _lines(stage: StageMemory) -> tuple[Section, Section]:
    """The lines, and the sources that they refer to by number."""
    lines = sorted(stage.lines, key=lambda line: -line.bytes)
    numbers = {source: str(number) for number, source in enumerate(dict.fromkeys(line.source for line in lines), 1)}
    rows = tuple(
        (_name(line), _size(line.bytes), _when(line), f"{line.formula} [{numbers[line.source]}]") for line in lines
    )
    return (
        Section(
            title="Line by line, the largest first",
            table=Table(
                headings=("what", "size", "when", "formula [source]"),
                rows=rows,
                words=frozenset({0, 2, 3}),
                note="e bytes an element, n tokens of a rank, s of a sequence, h hidden, q and k values of all query"
                " and of all key heads, f inside an MLP, E experts, t tensor parallel",
            ),
        ),
        Section(
            title="Sources",
            table=Table(
                headings=("", "source"),
                rows=tuple((number, source) for source, number in numbers.items()),
                words=frozenset({0, 1}),
            ),
        ),
    )


def _stages(estimate: MemoryEstimate) -> Section:
    rows = tuple(
        (
            str(stage.stage),
            str(stage.num_layers),
            str(stage.forwards_in_flight),
            _size(stage.part_bytes("activations", "loss")),
            _size(stage.device_bytes),
            _MOMENTS[stage.fullest_moment],
        )
        for stage in estimate.stages
    )
    return Section(
        title="By pipeline stage",
        table=Table(
            headings=("stage", "layers", "in flight", "activations", "together", "fullest at"),
            rows=rows,
            words=frozenset({5}),
        ),
    )


def _name(line: Line) -> str:
    return line.name if line.place == "device" else f"{line.name}, {_PLACES[line.place]}"


def _when(line: Line) -> str:
    if line.place != "device":
        return ""
    return "always" if len(line.moments) == len(_MOMENTS) else ", ".join(_MOMENTS[moment] for moment in line.moments)


def _size(amount: int) -> str:
    return "-" if amount == 0 else bytes_text(amount)


def _both(amount: int) -> str:
    """As links and as memory are counted."""
    return f"{bytes_text(amount)} ({amount / 1024**3:.1f} GiB)" if amount >= 10**8 else bytes_text(amount)
