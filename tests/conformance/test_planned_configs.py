"""DeepSpeed starts with what `ds-accum plan --write` writes, and takes an optimizer step on two ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from deepspeed_start import Outcome, Trial, run_trials
from this_machine import why_only_here

from ds_accum.plan.ds_config import deepspeed_config
from ds_accum.plan.hardware import read_hardware
from ds_accum.plan.layouts import Limits
from ds_accum.plan.planned import PlannedLayout
from ds_accum.plan.search import default_training, plan_batch
from tests.plan.shapes_for_tests import SMALL

pytestmark = pytest.mark.engine

RANKS = 2


def planned_layouts() -> Iterator[tuple[str, PlannedLayout]]:
    """One of each stage, dtype and place, data parallel alone or in a pipeline of two."""
    for dtype, accumulated in (("bf16", "fp32"), ("bf16", None), ("fp16", "fp32"), ("fp32", None)):
        given: dict[str, Any] = {"dtype": dtype, "grad_accum_dtype": accumulated, "communication_dtype": accumulated}
        plan = plan_batch(
            shape=SMALL,
            hardware=read_hardware("H200"),
            world_size=RANKS,
            sequence_length=64,
            global_batch_size=8,
            training=replace(default_training(64), **given),
            limits=Limits(offload=True, max_tensor_parallel_size=1, max_sequence_parallel_size=1),
            most=100_000,
        )
        seen = set()
        for planned in plan.layouts:
            way = planned.training
            stages = planned.layout.pipeline_parallel_size
            kind = (way.zero_stage, way.offload_optimizer, way.offload_parameters, stages)
            if planned.ledger.gradient_accumulation_steps == 2 and kind not in seen:
                seen.add(kind)
                yield f"{dtype} {accumulated=} stage, optimizer, parameters, pipeline: {kind}", planned


def trial(name: str, planned: PlannedLayout) -> Trial:
    stages = planned.layout.pipeline_parallel_size
    return Trial(
        name=name,
        config=deepspeed_config(planned),
        ranks=RANKS,
        pipeline_stages=stages if stages > 1 else 0,
        client_optimizer=None,
        step=True,
    )


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return run_trials(trial(name, planned) for name, planned in planned_layouts())


def test_deepspeed_starts_with_the_config_of_every_kind_of_layout_and_takes_a_step(
    outcomes: dict[str, Outcome],
) -> None:
    assert len(outcomes) > 30
    failed = {
        name: outcome.error
        for name, outcome in outcomes.items()
        if outcome.reached != "first step" and not why_only_here(outcome.error)
    }
    assert not failed


def test_nearly_all_of_them_could_be_tried_here(outcomes: dict[str, Outcome]) -> None:
    reached = [name for name, outcome in outcomes.items() if outcome.reached == "first step"]
    assert all("fp16" in name for name in outcomes.keys() - set(reached))
    assert len(reached) > len(outcomes) / 2
