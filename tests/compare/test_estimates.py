"""What the planner says that a variant holds, in the terms of the planner and for the model that was trained."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ds_accum.compare.estimates import estimated_memory
from ds_accum.compare.result import HeldMemory
from ds_accum.compare.spec import RunSpec, Variant, Workload
from tests.compare.example import PARAMETERS, TENSORS, variant

SPEC = RunSpec(world_size=2, global_batch_size=16, steps=2, workload=Workload(), variants=())
FP32 = 4 * PARAMETERS


def held(row: Variant, **spec: Any) -> HeldMemory | None:
    return estimated_memory(row, dataclasses.replace(SPEC, **spec), tensors=TENSORS)


def test_stage_0_in_float32_holds_everything_once() -> None:
    assert held(variant("stock", 0)) == HeldMemory(parameters=FP32, gradients=FP32, optimizer_state=FP32)


def test_stage_3_holds_its_part_and_a_float32_copy() -> None:
    # SGD's momentum, and the copy of the weights that every ZeRO stage has.
    assert held(variant("token", 3)) == HeldMemory(parameters=FP32 // 2, gradients=FP32 // 2, optimizer_state=FP32)


def test_adamw_has_two_moments() -> None:
    found = held(variant("stock", 0), optimizer="adamw")
    assert found is not None and found.optimizer_state == 2 * FP32


@pytest.mark.parametrize("engine", ["ddp", "fsdp", "single"])
def test_what_is_not_deepspeed_has_no_estimate(engine: Any) -> None:
    assert held(variant(engine)) is None


def test_what_the_planner_has_no_moment_for_has_no_estimate() -> None:
    row = variant("stock", 2)
    zero = {**row.config["zero_optimization"], "offload_optimizer": {"device": "cpu"}}
    assert held(dataclasses.replace(row, config={**row.config, "zero_optimization": zero})) is None
