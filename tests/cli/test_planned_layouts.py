"""What `plan` says of a layout is what `ledger` and `memory` say of the config that is written for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ds_accum.plan.communication import step_communication
from ds_accum.plan.ds_config import config_text, deepspeed_config, launch_degrees
from ds_accum.plan.hardware import read_hardware
from ds_accum.plan.layouts import Limits
from ds_accum.plan.planned import PlannedLayout
from ds_accum.plan.search import default_training, plan_batch
from ds_accum.plan.shapes import read_shape

MODELS = ("llama-2-7b", "mixtral-8x7b")
DTYPES = [("bf16", "fp32"), ("bf16", None), ("fp16", "fp32"), ("fp32", None)]
LENGTH = 4096


@cache
def layouts(model: str, dtype: Any, accumulated: Any) -> tuple[PlannedLayout, ...]:
    """One of each stage and place of the states, on as many kinds of ranks as there are."""
    training = replace(
        default_training(LENGTH), dtype=dtype, grad_accum_dtype=accumulated, communication_dtype=accumulated
    )
    plan = plan_batch(
        shape=read_shape(model),
        hardware=read_hardware("H200"),
        world_size=32,
        sequence_length=LENGTH,
        global_batch_size=64,
        training=training,
        limits=Limits(offload=True, max_context_parallel_size=2, recompute=("full",), max_micro_batch_size=1),
        most=100_000,
    )
    degrees = ("tensor", "pipeline", "context", "sequence", "expert")
    seen: dict[object, PlannedLayout] = {}
    for planned in plan.layouts:
        layout, way = planned.layout, planned.training
        split = [degree for degree in degrees if getattr(layout, f"{degree}_parallel_size") > 1]
        if len(split) <= 1:
            seen.setdefault((way.zero_stage, way.offload_optimizer, *split), planned)
    return tuple(seen.values())


def written(ds_accum: Any, folder: Path, model: str, dtype: Any, accumulated: Any) -> Iterator[tuple[Any, Any]]:
    """Each layout, and a function that runs a command over its config."""
    shape = read_shape(model)
    for planned in layouts(model, dtype, accumulated):
        (folder / "ds_config.json").write_text(config_text(deepspeed_config(planned)), "utf-8")

        def run(command: str, *options: str, planned: PlannedLayout = planned) -> dict[str, Any]:
            given = ("--model", shape.name, "--seq-len", str(LENGTH), *launch_degrees(planned).split())
            finished = ds_accum(command, folder / "ds_config.json", *given, *options, "--format", "json")
            assert (finished.code, finished.errors) == (0, "")
            told: dict[str, Any] = json.loads(finished.output)
            return told

        yield planned, run


@pytest.mark.parametrize(("dtype", "accumulated"), DTYPES)
@pytest.mark.parametrize("model", MODELS)
def test_the_bytes_of_a_plan_are_those_of_the_ledger_of_its_config(
    ds_accum: Any, tmp_path: Path, model: str, dtype: str, accumulated: str | None
) -> None:
    groups = set()
    for planned, run in written(ds_accum, tmp_path, model, dtype, accumulated):
        told = run("ledger")
        way = planned.training
        sent = step_communication(
            read_shape(model), planned.layout, way, pipeline_stage=told["pipeline_stage"]
        ).sent_bytes_of("data", "expert data")
        assert told["stages"][way.zero_stage]["sent_bytes"] == sent > 0, (planned.layout, way)
        groups.add(launch_degrees(planned))
    assert len(groups) >= 4


@pytest.mark.parametrize(("dtype", "accumulated"), DTYPES)
@pytest.mark.parametrize("model", MODELS)
def test_the_memory_of_a_plan_is_that_of_its_config(
    ds_accum: Any, tmp_path: Path, model: str, dtype: str, accumulated: str | None
) -> None:
    with_ulysses = 0
    for planned, run in written(ds_accum, tmp_path, model, dtype, accumulated):
        way = planned.training
        norms = ("--megatron-sequence-parallel", "yes" if way.megatron_sequence_parallel else "no")
        told = run("memory", "--recompute", way.recompute, *norms)
        assert told["peak_bytes"] == planned.memory.peak_bytes, (planned.layout, way)
        with_ulysses += planned.layout.sequence_parallel_size > 1
    assert with_ulysses
