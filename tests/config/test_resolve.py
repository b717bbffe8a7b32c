"""The batch of a config in a launch: DeepSpeed's verdict, and the exact reason."""

from __future__ import annotations

import itertools
import logging
import os
from typing import Any

import pytest

from ds_accum.config.launch import Launch
from ds_accum.config.resolve import (
    ACCUMULATION,
    GLOBAL_BATCH,
    MICRO_BATCH,
    BatchFault,
    NumberOrigin,
    resolve_batch,
    resolve_data_parallel,
)
from ds_accum.errors import LayoutError


def batch(train: Any = None, micro: Any = None, accumulation: Any = None, **more: Any) -> dict[str, Any]:
    sizes = {GLOBAL_BATCH: train, MICRO_BATCH: micro, ACCUMULATION: accumulation}
    return {key: value for key, value in sizes.items() if value is not None} | more


@pytest.mark.parametrize(
    ("values", "world", "fault", "key"),
    [
        ({}, 8, BatchFault.MISSING, None),
        (batch(accumulation=4), 8, BatchFault.MISSING, None),
        (batch(train="32"), 8, BatchFault.NOT_A_NUMBER, GLOBAL_BATCH),
        (batch(train="auto", micro=4), None, BatchFault.NOT_A_NUMBER, GLOBAL_BATCH),
        (batch(micro=4, accumulation=0), None, BatchFault.NOT_POSITIVE, ACCUMULATION),
        (batch(micro=4, accumulation=False), 1, BatchFault.NOT_POSITIVE, ACCUMULATION),
        (batch(train=256, micro=8, accumulation=1), 8, BatchFault.MISMATCH, None),
        (batch(train=100, micro=3), 8, BatchFault.INDIVISIBLE, None),
        (batch(train=16, micro=4), 8, BatchFault.INDIVISIBLE, None),
        (batch(train=100), 8, BatchFault.INDIVISIBLE, None),
        (batch(train=7.5), 1, BatchFault.FRACTION, GLOBAL_BATCH),
        (batch(micro=4, sequence_parallel_size=0), 8, BatchFault.DATA_PARALLEL, "sequence_parallel_size"),
        (batch(micro=4, sequence_parallel_size="2"), None, BatchFault.DATA_PARALLEL, "sequence_parallel_size"),
        (batch(micro=4, sequence_parallel_size=-2), 8, BatchFault.DATA_PARALLEL, "sequence_parallel_size"),
        (batch(train=30, micro=2, sequence_parallel_size=3), 8, BatchFault.FRACTION, "sequence_parallel_size"),
    ],
)
def test_a_refused_batch_has_one_reason(
    values: dict[str, Any], world: int | None, fault: BatchFault, key: str | None
) -> None:
    resolution = resolve_batch(values, Launch(world_size=world))
    assert (resolution.fault, resolution.fault_key) == (fault, key)
    assert resolution.ledger() is None


def test_without_a_world_size_only_what_fails_everywhere_is_a_fault() -> None:
    assert resolve_batch(batch(train=96, micro=3), Launch()).fault is None
    assert resolve_batch(batch(train=100, micro=3), Launch()).fault is BatchFault.INDIVISIBLE
    assert resolve_batch(batch(train=96, micro=3, accumulation=4), Launch()).fault is None
    assert resolve_batch(batch(train=128, accumulation=3, sequence_parallel_size=3), Launch()).fault is None
    assert resolve_batch(batch(train=96, micro=3, accumulation=5), Launch()).fault is BatchFault.MISMATCH


def test_without_a_world_size_a_number_that_floats_round_is_left_to_the_launch() -> None:
    assert resolve_batch(batch(train=1e30, micro=3), Launch()).fault is None
    assert resolve_batch(batch(train=10**30, micro=3), Launch()).fault is BatchFault.INDIVISIBLE
    assert resolve_batch(batch(train=10**30, micro=3.0), Launch()).fault is None
    assert resolve_batch(batch(train=100.0, micro=1e30), Launch()).fault is BatchFault.INDIVISIBLE
    assert resolve_batch(batch(train=2.0**53 - 1, micro=2, accumulation=2**52), Launch()).fault is BatchFault.MISMATCH


def test_a_fault_that_is_known_without_a_world_size_is_there_at_every_one() -> None:
    edges = (2**53 - 1, 2**53, 2**53 + 2, 3 * 2**52, 10**22, 10**30, 10**308)
    numbers = (None, 1, 2, 3, 7, 3.0, 10**16 + 1, *edges, *map(float, edges))
    worlds = (1, 2, 3, 4, 7, 8, 64, 3 * 2**20)
    known = loads_somewhere = 0
    for values in itertools.starmap(batch, itertools.product(numbers, repeat=3)):
        accepted_on = [world for world in worlds if resolve_batch(values, Launch(world_size=world)).fault is None]
        if resolve_batch(values, Launch()).fault is not None:
            known += 1
            assert not accepted_on, values
        loads_somewhere += bool(accepted_on)
    assert known and loads_somewhere


def test_an_accepted_batch_has_its_ledger_and_the_origin_of_each_number() -> None:
    resolution = resolve_batch(batch(train=96, micro=3), Launch(world_size=8))
    ledger = resolution.ledger()
    assert ledger is not None
    assert ledger.gradient_accumulation_steps == 4
    assert [resolution.origin(key) for key in (GLOBAL_BATCH, MICRO_BATCH, ACCUMULATION)] == [
        NumberOrigin.WRITTEN,
        NumberOrigin.WRITTEN,
        NumberOrigin.DERIVED,
    ]
    assert resolve_batch(batch(micro=3), Launch(world_size=8)).origin(ACCUMULATION) is NumberOrigin.DEFAULT


def test_the_scripts_own_layout_divides_the_world_and_the_config_key_does_not_count_then() -> None:
    values = batch(train=64, micro=4, sequence_parallel_size=2)
    resolved = resolve_data_parallel(values, Launch(world_size=64, tensor_parallel_size=2, pipeline_parallel_size=4))
    assert resolved.size == 8
    assert resolved.equation == "world 64 / (tensor 2 x pipeline 4) = data parallel 8"


def test_sequence_parallel_size_in_the_config_divides_as_floats() -> None:
    resolved = resolve_data_parallel(batch(micro=4, sequence_parallel_size=3), Launch(world_size=8))
    assert resolved.size == pytest.approx(8 / 3)
    assert resolve_batch(batch(micro=4, sequence_parallel_size=3), Launch(world_size=8)).fault is None


def test_older_releases_do_not_divide_by_sequence_parallel_size() -> None:
    launch = Launch(world_size=8, deepspeed_version=(0, 16, 9))
    assert resolve_data_parallel(batch(micro=4, sequence_parallel_size=2), launch).size == 8


def test_both_mesh_sizes_in_the_config_give_the_data_parallel_size() -> None:
    values = batch(micro=4, sequence_parallel_size=2, data_parallel_size=4)
    assert resolve_data_parallel(values, Launch(world_size=8)).size == 4


def test_degrees_that_do_not_fit_the_world_are_an_error_of_the_launch() -> None:
    with pytest.raises(LayoutError, match="world 12 is not a multiple of tensor 8"):
        resolve_batch(batch(micro=4), Launch(world_size=12, tensor_parallel_size=8))


@pytest.mark.engine
def test_the_verdict_is_that_of_deepspeed_on_every_mixture_of_numbers() -> None:
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    from deepspeed.runtime import config as deepspeed_config
    from deepspeed.utils import logger

    logger.setLevel(logging.ERROR)

    class World:
        size: int = 1

        def get_rank(self) -> int:
            return 0

        def get_world_size(self) -> int:
            return self.size

    world = World()
    real, deepspeed_config.dist = deepspeed_config.dist, world
    numbers = (None, 1, 2, 3, 8, 24, 64, 2.0, 2.5, 0.5, 0, -2, True, False, "8", 10**30, 1e30)
    sequence_sizes = (None, 1, 2, 3, 0, -1, 0.5, "2", [2])
    cases = itertools.chain(
        itertools.product(numbers, numbers, numbers, (1, 3, 8), (None,)),
        itertools.product((None, 24, 64), (None, 2, 3), (None, 4), (1, 8), sequence_sizes),
    )
    try:
        for train, micro, accumulation, size, sequence in cases:
            values = batch(train, micro, accumulation)
            if sequence is not None:
                values["sequence_parallel_size"] = sequence
            world.size = size
            try:
                deepspeed_config.DeepSpeedConfig(dict(values))
                accepted = True
            except Exception:
                accepted = False
            assert (resolve_batch(values, Launch(world_size=size)).fault is None) == accepted, (values, size)
    finally:
        deepspeed_config.dist = real
