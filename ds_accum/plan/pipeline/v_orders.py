"""The two orders of a model folded into a V: a stage holds one chunk on the way there and one on the way back.

Stage 0 holds both ends of the model and the last stage its turning point, so that a backward can begin where the
forward has just ended. In the names of the steps below F, I, W and B are forward, gradient of the input, gradient of
the weights and the two gradients together; 0 and 1 are the chunk; `x` joins two that run together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from ds_accum.plan.pipeline.orders import Instruction, Part
from ds_accum.plan.pipeline.shape import PipelineShape

__all__ = ["ORDERS"]


class _Order:
    """An order as it grows: every part of every chunk takes the micro-batches one after the other."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.waiting: deque[tuple[int, int]] = deque()  # gradients of weights that are still due, oldest first
        self._forwards = [0, 0]
        self._backwards = [0, 0]

    def forward(self, chunk: int, *, with_next: bool = False) -> None:
        self.instructions.append(Instruction(Part.FORWARD, self._forwards[chunk], chunk, with_next))
        self._forwards[chunk] += 1

    def backward(self, chunk: int, *, split: bool = False) -> None:
        """Whole, or the gradient of the input alone, with that of the weights due later."""
        part = Part.BACKWARD_INPUT if split else Part.BACKWARD
        self.instructions.append(Instruction(part, self._backwards[chunk], chunk))
        if split:
            self.waiting.append((self._backwards[chunk], chunk))
        self._backwards[chunk] += 1

    def num_forwards(self, chunk: int) -> int:
        return self._forwards[chunk]

    def weight(self, chunk: int | None = None) -> None:
        """The gradient of the weights that is due for longest, of any chunk or of this one; nothing if none is."""
        for micro_batch, found in self.waiting:
            if chunk is None or found == chunk:
                self.waiting.remove((micro_batch, found))
                self.instructions.append(Instruction(Part.BACKWARD_WEIGHT, micro_batch, found))
                return


def _zero_bubble_v(shape: PipelineShape, stage: int) -> tuple[Instruction, ...]:
    """ZB-V of Qi et al. 2023 (arXiv 2401.10241), in the order of torch 2.13 `ScheduleZBVZeroBubble`."""
    p, m = shape.stages, shape.micro_batches
    # A window too small to fill the V is the start of one that does, without the micro-batches that it has not.
    filled = max(2 * p - 1, m)
    order = _Order()
    for _ in range(2 * (p - stage) - 1):  # F0
        order.forward(0)
    for _ in range(stage):  # F1 F0
        order.forward(1)
        order.forward(0)
    for _ in range(p - stage):  # F1 I1 W1
        order.forward(1)
        order.backward(1, split=True)
        order.weight()
    while order.num_forwards(1) < filled:  # F0 I0 W0 F1 I1 W1
        if order.num_forwards(0) < filled:
            order.forward(0)
        order.backward(0, split=True)
        order.weight()
        order.forward(1)
        order.backward(1, split=True)
        order.weight()
    for _ in range(stage):  # I0 I1
        order.backward(0, split=True)
        order.backward(1, split=True)
    for _ in range(p - stage):  # I0 W0
        order.backward(0, split=True)
        order.weight(0)
    while any(chunk == 1 for _, chunk in order.waiting):  # W1
        order.weight(1)
    while order.waiting:  # W0
        order.weight()
    return tuple(instruction for instruction in order.instructions if instruction.micro_batch < m)


def _dualpipe_v(shape: PipelineShape, stage: int) -> tuple[Instruction, ...]:
    """DeepSeek's DualPipe on half the stages, in the order of torch 2.13 `ScheduleDualPipeV`."""
    p, m = shape.stages, shape.micro_batches
    behind = p - 1 - stage
    order = _Order()
    for _ in range(2 * behind):  # F0
        order.forward(0)
    for _ in range(stage + 1):  # F0 F1
        order.forward(0)
        order.forward(1)
    for _ in range(behind):  # I1 W1 F1
        order.backward(1, split=True)
        order.weight()
        order.forward(1)
    for turn in range(m - 2 * p + stage + 1):  # F0xB1 F1xB0
        # On the last stage B1 waits for F1 alone, which is done: joined to F0 it would only start later.
        order.forward(0, with_next=turn > 0 or behind > 0)
        order.backward(1)
        order.forward(1, with_next=True)
        order.backward(0)
    for _ in range(behind):  # B1 F1xB0
        order.backward(1)
        order.forward(1, with_next=True)
        order.backward(0)
    for turn in range(2 * (stage + 1)):  # B1 B0, the second half of them in two parts
        order.backward(1 - turn % 2, split=turn >= _first_split(stage))
    for _ in range(behind):  # W I0
        order.weight()
        order.backward(0, split=True)
    while order.waiting:  # W
        order.weight()
    return tuple(order.instructions)


def _first_split(stage: int) -> int:
    """Which of the 2 (stage + 1) backwards B1 B0 B1 B0 ... is the first in two parts."""
    pairs = stage + 1
    return pairs // 2 * 2 + (1 if stage % 2 == 0 else 0)


ORDERS: Mapping[str, Callable[[PipelineShape, int], tuple[Instruction, ...]]] = {
    "zero-bubble-v": _zero_bubble_v,
    "dualpipev": _dualpipe_v,
}
