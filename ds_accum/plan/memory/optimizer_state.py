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

__all__ = ["STATE_BYTES", "optimizer_lines"]

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

_MASTERS = "DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py:546, zero/stage3.py:1162, bf16_optimizer.py:175"
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
            _MASTERS,
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


def place_of_state(training: TrainingSetup) -> Place:
    """Where the state lives. ZeRO-1 and ZeRO-2 take NVMe for the CPU (stage_1_and_2.py:221)."""
    if training.offload_optimizer == "none":
        return "device"
    return "nvme" if training.offload_optimizer == "nvme" and training.zero_stage == 3 else "host"


def _updated(held: Holdings, training: TrainingSetup, has_pipeline: bool) -> tuple[int, str]:
    """The elements that this rank updates, and how many ranks share the work."""
    if training.zero_stage == 3:
        return held.partition, f" of {held.elements:,} / {held.shards:,} ranks"
    # A pipeline in bfloat16 gets BF16_Optimizer at stage 0 too, which cuts the state as ZeRO-1 does.
    if training.zero_stage or (has_pipeline and training.dtype == "bf16"):
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
