"""How the parts of a plan are said: layouts, ways to train, misses and advantages in a few words each."""

from __future__ import annotations

from ds_accum.batch import ParallelLayout
from ds_accum.batch.wording import show_list
from ds_accum.plan.cost import TimePart
from ds_accum.plan.planned import Dropped, Miss, PlannedLayout, Reason
from ds_accum.plan.reasons import Advantage
from ds_accum.plan.training import TrainingSetup
from ds_accum.reporting import bytes_text, seconds_text

__all__ = [
    "DROPPED_BECAUSE",
    "PART_NAMES",
    "advantage_words",
    "degrees_words",
    "miss_words",
    "parameters_text",
    "percent_text",
    "sentence",
    "sizes_words",
    "stage_words",
    "training_words",
    "way_words",
]

PART_NAMES: dict[TimePart, str] = {
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

DROPPED_BECAUSE: dict[Reason, str] = {
    "memory": "more memory than a GPU has",
    "host memory": "more memory than the host has",
    "bubble": "a larger bubble than allowed",
    "batch": "data parallel does not divide the batch",
    "layout": "the model can't be cut like this",
}


def advantage_words(first: PlannedLayout, other: PlannedLayout, advantage: Advantage) -> str:
    """Why the first is ahead, as a clause."""
    if not advantage.seconds:
        return f"as fast, with the simpler set-up: {way_words(first.training)} over {way_words(other.training)}"
    # What is below a twentieth of the difference explains nothing.
    least = advantage.seconds / 20
    saved = [f"{seconds_text(seconds)} less {PART_NAMES[part]}" for part, seconds in advantage.saved if seconds > least]
    spent = [f"{seconds_text(seconds)} more {PART_NAMES[part]}" for part, seconds in advantage.spent if seconds > least]
    said = f"{percent_text(advantage.share)} faster, {show_list(saved, last=' and ')}"
    return f"{said}, for {show_list(spent, last=' and ')}" if spent else said


def miss_words(item: Dropped) -> str:
    """The nearest miss: what it needs of what there is, and which layout it is."""
    miss = item.nearest
    if miss is None:
        return ""
    if item.reason == "bubble":
        return f"{percent_text(miss.needed)}, where {percent_text(miss.available)} are allowed: {_missed(miss)}"
    more = percent_text(miss.factor - 1)
    where = " a node" if item.reason == "host memory" else ""
    return f"{bytes_text(miss.needed)} of {bytes_text(miss.available)}{where}, {more} too much: {_missed(miss)}"


def _missed(miss: Miss) -> str:
    return f"{degrees_words(miss.layout)}, {way_words(miss.training)}, micro batch {miss.ledger.micro_batch_size}"


def degrees_words(layout: ParallelLayout) -> str:
    """The degrees without the ones: "tensor 2 x pipeline 4 x data parallel 8, expert 2"."""
    factors = (
        ("tensor", layout.tensor_parallel_size),
        ("pipeline", layout.pipeline_parallel_size),
        ("context", layout.context_parallel_size),
        ("sequence", layout.sequence_parallel_size),
    )
    said = [f"{name} {size}" for name, size in factors if size > 1]
    said.append(f"data parallel {layout.data_parallel_size}")
    experts = "" if layout.expert_parallel_size == 1 else f", expert {layout.expert_parallel_size}"
    return " x ".join(said) + experts


def way_words(training: TrainingSetup) -> str:
    """The ZeRO stage, what lies on the host, and the recompute."""
    said = f"ZeRO {training.zero_stage}"
    if training.offload_optimizer != "none":
        said += " with all on the host" if training.offload_parameters != "none" else " with its states on the host"
    return said if training.recompute == "none" else f"{said}, {training.recompute} recompute"


def training_words(training: TrainingSetup) -> str:
    """What all layouts have in common: dtypes, optimizer, attention, kernels, schedule."""
    summed, sent = training.accumulation_dtype, training.communication_dtype or training.dtype
    gradients = f"add up and travel in {summed}" if summed == sent else f"add up in {summed} and travel in {sent}"
    if training.communication_dtype is None and training.dtype != "fp32":
        gradients += " (under Ulysses in fp32)"
    attention = "FlashAttention" if training.flash_attention else "attention that keeps its scores"
    kernels = "fused kernels" if training.fused_kernels else "plain PyTorch between the matrices"
    dropout = ", dropout" if training.dropout else ""
    return (
        f"{training.dtype} parameters, gradients that {gradients}, {training.optimizer}, {attention},"
        f" {kernels}{dropout}, pipelines in {training.schedule.upper()}"
    )


def stage_words(training: TrainingSetup) -> str:
    """The ZeRO stage, with a + for each of optimizer states and parameters on the host."""
    offloaded = (training.offload_optimizer, training.offload_parameters)
    return f"{training.zero_stage}{'+' * sum(place != 'none' for place in offloaded)}"


def sizes_words(sizes: tuple[int, ...]) -> str:
    """Three sizes by name, more as a range."""
    return show_list([str(size) for size in sizes]) if len(sizes) <= 3 else f"{sizes[0]} to {sizes[-1]}"


def percent_text(share: float) -> str:
    """A share from 0 to 1, two digits that matter: 0.77 %, 52 %."""
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 10 or percent == round(percent) else f"{percent:.2g} %"


def parameters_text(parameters: int) -> str:
    """A number of parameters: 69.0 billion."""
    if parameters >= 10**9:
        return f"{parameters / 10**9:,.1f} billion"
    return f"{parameters / 10**6:,.0f} million"


def sentence(text: str) -> str:
    """A clause with a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."
