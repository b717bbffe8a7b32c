"""Optimizer state: float32 copies of the weights, and what the optimizer remembers of each.

    float32 weights     4 B an element; none where ZeRO-0 trains in float32, whose weights are the model's own
    Adam, AdamW, Lamb   8 B     two moments                SGD          0 B, with momentum 4 B
    Lion                4 B     one moment                 Muon         4 B a matrix in the layers, 8 B all else
    Adagrad, RMSprop    4 B     the squares' sum

of P elements at ZeRO-0, of P/D at ZeRO-1 to 3 and in BF16_Optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.plan.memory.holdings import Holdings
from ds_accum.plan.memory.line import Line, Place, make_line
from ds_accum.plan.training import Optimizer, TrainingSetup

__all__ = ["STATE_BYTES", "optimizer_lines", "place_of_state", "uses_bf16_optimizer"]

STATE_BYTES: dict[Optimizer, int] = {
    "adam": 8,
    "adamw": 8,
    "lamb": 8,
    "lion": 4,
    "sgd": 0,
    "sgd_momentum": 4,
    "adagrad": 4,
    "rmsprop": 4,
    "muon": 4,
}
"""Bytes an element, all states being float32 (torch.optim; deepspeed/ops/adam, lamb, lion; runtime/zero/muon)."""

_STAGES = {
    "0": "runtime/fp16/fused_optimizer.py:100",
    "bf16": "runtime/bf16_optimizer.py:182",
    "12": "runtime/zero/stage_1_and_2.py:560",
    "3": "runtime/zero/stage3.py:1172",
}
_ADAM = 8


def optimizer_lines(held: Holdings, training: TrainingSetup, *, has_pipeline: bool) -> Iterator[Line]:
    """The state of one rank, on the GPU or where it is offloaded to."""
    elements, said = _updated(held, training, has_pipeline)
    place = place_of_state(training)
    # ZeRO has a copy also where the model is in float32.
    if training.zero_stage or training.dtype != "fp32":
        yield make_line(
            "optimizer",
            "weights in float32",
            4 * elements,
            "4 B x {elements}{said}",
            f"DeepSpeed 0.19.8, {_STAGES[_wrapped(training, has_pipeline)]}",
            place=place,
            elements=elements,
            said=said,
        )
    if training.optimizer == "muon":
        yield from _muon(held, elements, said, place)
        return
    each = STATE_BYTES[training.optimizer]
    if each:
        yield make_line(
            "optimizer",
            f"state of {training.optimizer}",
            each * elements,
            "{each} B x {elements}{said}",
            "the optimizer's own state, float32",
            place=place,
            each=each,
            elements=elements,
            said=said,
        )


def _wrapped(training: TrainingSetup, has_pipeline: bool) -> str:
    if uses_bf16_optimizer(training, has_pipeline=has_pipeline):
        return "bf16"
    return {0: "0", 3: "3"}.get(training.zero_stage, "12")


def uses_bf16_optimizer(training: TrainingSetup, *, has_pipeline: bool) -> bool:
    """Whether DeepSpeed wraps the optimizer in BF16_Optimizer (runtime/engine.py:2294-2325).

    Of offloads it asks for that to the CPU alone (runtime/engine.py:1567).
    """
    if training.dtype != "bf16":
        return False
    if training.zero_stage == 0:
        return has_pipeline
    is_float32 = training.accumulation_dtype == "fp32"
    return training.zero_stage == 1 and is_float32 and training.offload_optimizer != "cpu"


def place_of_state(training: TrainingSetup) -> Place:
    """Where the state lives. ZeRO-1 and ZeRO-2 take NVMe for the CPU (stage_1_and_2.py:221); BF16_Optimizer
    keeps it on the GPU.
    """
    if training.offload_optimizer == "none" or uses_bf16_optimizer(training, has_pipeline=False):
        return "device"
    return "nvme" if training.offload_optimizer == "nvme" and training.zero_stage == 3 else "host"


def _updated(held: Holdings, training: TrainingSetup, has_pipeline: bool) -> tuple[int, str]:
    """The elements that this rank updates, and how many ranks share the work."""
    if training.zero_stage == 3:
        return held.partition, f" of {held.elements:,} / {held.shards:,} ranks"
    # A pipeline in bfloat16 gets BF16_Optimizer at stage 0 too, which cuts the state as ZeRO-1 does.
    if training.zero_stage or uses_bf16_optimizer(training, has_pipeline=has_pipeline):
        return held.flat_partition, f" of {held.elements:,} / {held.shards:,} ranks"
    return held.elements, ""


def _muon(held: Holdings, elements: int, said: str, place: Place) -> Iterator[Line]:
    """Matrices in layers have a momentum, all else Adam's two moments (runtime/zero/muon/muon_optimizer.py)."""
    matrices = elements * held.matrices // held.elements
    yield make_line(
        "optimizer",
        "state of muon",
        STATE_BYTES["muon"] * matrices + _ADAM * (elements - matrices),
        "4 B x {matrices} in matrices + 8 B x {others} elsewhere{said}",
        "DeepSpeed 0.19.8, runtime/zero/muon/muon_optimizer.py",
        place=place,
        matrices=matrices,
        others=elements - matrices,
        said=said,
    )
