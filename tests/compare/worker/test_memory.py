"""What a variant holds, and the peak of its process."""

from __future__ import annotations

from pathlib import Path

import pytest
from worker_runs import launch, variant

from ds_accum.compare.result import Memory
from ds_accum.compare.spec import RunSpec, Variant, Workload

WIDE = Workload(layers=1, width=512, heads=4, vocabulary=64, sequence_length=16)
PARAMETERS = 64 * 512 * 2 + 16 * 512 + 12 * 512**2 + (1 + 4 + 1) * 512 + 3 * 2 * 512
SIZE = 4 * PARAMETERS


def memory_of(folder: Path, item: Variant) -> Memory:
    spec = RunSpec(world_size=2, global_batch_size=16, steps=2, workload=WIDE, variants=(item,))
    memory = launch(folder, spec, "memory").results[item.name].memory
    assert memory is not None and memory.reserved is None
    return memory


# Of each: parameters, gradients, optimizer state (SGD's momentum, and fp32 copies where there are), in model sizes.
HELD = {
    "zero-0": (variant("stock", 0), (1, 1, 1)),
    "zero-3": (variant("stock", 3), (0.5, 0.5, 1)),
    "ddp": (variant("ddp"), (1, 1, 1)),
    "fsdp": (variant("fsdp"), (0.5, 0.5, 0.5)),
}


@pytest.mark.parametrize("name", HELD)
def test_what_is_held_is_told_apart(tmp_path: Path, name: str) -> None:
    item, (parameters, gradients, state) = HELD[name]
    memory = memory_of(tmp_path, item)
    assert memory.parameters == pytest.approx(parameters * SIZE, rel=0.01)
    assert memory.gradients == pytest.approx(gradients * SIZE, rel=0.01)
    assert memory.optimizer_state == pytest.approx(state * SIZE, rel=0.01)
    if memory.estimate is not None:
        assert memory.parameters == pytest.approx(memory.estimate.parameters, rel=0.001)
        assert memory.gradients == pytest.approx(memory.estimate.gradients, rel=0.001)
        assert memory.optimizer_state == pytest.approx(memory.estimate.optimizer_state, rel=0.001)
    assert (memory.estimate is not None) == name.startswith("zero")
    # At its highest a process held at least these, and not what torch and DeepSpeed themselves take.
    held = memory.parameters + memory.gradients + memory.optimizer_state
    assert 0.9 * held < memory.peak < 24 * SIZE


def test_zero_1_holds_a_part_of_the_gradients_and_of_the_state(tmp_path: Path) -> None:
    memory = memory_of(tmp_path, variant("token", 1))
    assert memory.parameters == pytest.approx(SIZE, rel=0.01)
    assert 0.49 * SIZE < memory.gradients < SIZE
    assert memory.optimizer_state == pytest.approx(SIZE, rel=0.01)
    assert memory.estimate is not None
    assert memory.gradients == pytest.approx(memory.estimate.gradients, rel=0.001)
