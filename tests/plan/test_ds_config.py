"""The config of every kind of layout passes the linter, and asks for what the estimate assumed."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from ds_accum.config.launch import Launch
from ds_accum.errors import UsageError
from ds_accum.lint import lint_text
from ds_accum.lint.diagnostic import Severity
from ds_accum.plan.ds_config import (
    beyond_the_config,
    config_text,
    deepspeed_config,
    launch_degrees,
    writable_optimizers,
)
from ds_accum.plan.hardware import read_hardware
from ds_accum.plan.layouts import Limits
from ds_accum.plan.planned import PlannedLayout
from ds_accum.plan.search import default_training, plan_batch
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.training import Optimizer, TrainingSetup
from tests.plan.shapes_for_tests import SMALL, SMALL_WITH_EXPERTS

DTYPES = [("bf16", "fp32"), ("bf16", None), ("fp16", "fp32"), ("fp16", None), ("fp32", None)]


def training(dtype: str = "bf16", accumulated: str | None = "fp32", **changes: Any) -> TrainingSetup:
    given: dict[str, Any] = {"dtype": dtype, "grad_accum_dtype": accumulated, "communication_dtype": accumulated}
    return replace(default_training(1024), **{**given, **changes})


@cache
def every_kind_of_layout(shape: ModelShape, base: TrainingSetup) -> tuple[PlannedLayout, ...]:
    """One planned layout of each combination of what a config, or the linter's launch, can tell apart."""
    plan = plan_batch(
        shape=shape,
        hardware=read_hardware("H200"),
        world_size=12,
        sequence_length=1024,
        global_batch_size=24,
        training=base,
        limits=Limits(offload=True, max_context_parallel_size=2),
        most=100_000,
    )
    seen: dict[object, PlannedLayout] = {}
    for planned in plan.layouts:
        layout, way = planned.layout, planned.training
        degrees = ("tensor", "pipeline", "context", "sequence", "expert")
        kind = (
            tuple(getattr(layout, f"{degree}_parallel_size") > 1 for degree in degrees),
            (way.zero_stage, way.recompute, way.offload_optimizer, way.offload_parameters),
            planned.ledger.gradient_accumulation_steps > 1,
        )
        seen.setdefault(kind, planned)
    return tuple(seen.values())


def launch_of(planned: PlannedLayout) -> Launch:
    layout = planned.layout
    return Launch(
        world_size=layout.world_size,
        tensor_parallel_size=layout.tensor_parallel_size,
        pipeline_parallel_size=layout.pipeline_parallel_size,
        context_parallel_size=layout.context_parallel_size,
        sequence_parallel_size=layout.sequence_parallel_size,
        expert_parallel_size=layout.expert_parallel_size,
    )


@pytest.mark.parametrize("optimizer", writable_optimizers())
@pytest.mark.parametrize(("dtype", "accumulated"), DTYPES)
@pytest.mark.parametrize("shape", [SMALL, SMALL_WITH_EXPERTS], ids=lambda shape: shape.name)
def test_the_config_of_every_kind_of_layout_passes_the_linter(
    shape: ModelShape, dtype: str, accumulated: str | None, optimizer: Optimizer
) -> None:
    kinds = every_kind_of_layout(shape, training(dtype, accumulated))
    assert len(kinds) > 60
    for planned in kinds:
        way = replace(planned.training, optimizer=optimizer)
        text = config_text(deepspeed_config(replace(planned, training=way)))
        objections = [
            f"{item.code} {item.message}"
            for item in lint_text(text, launches=[launch_of(planned)])
            if item.severity is not Severity.INFO
        ]
        assert objections == [], (launch_degrees(planned), text)


def test_the_linter_would_object_to_the_config_of_another_layout() -> None:
    piped = next(
        planned for planned in every_kind_of_layout(SMALL, training()) if planned.layout.pipeline_parallel_size > 1
    )
    wrong = lint_text(config_text(deepspeed_config(piped)), launches=[Launch(world_size=12)])
    assert "DSA101" in {item.code for item in wrong}


def first(**wanted: object) -> PlannedLayout:
    """The first layout whose training or layout has these values."""
    for planned in every_kind_of_layout(SMALL, training()):
        owners = (planned.training, planned.layout)
        values = {name: getattr(owner, name) for owner in owners for name in wanted if hasattr(owner, name)}
        if values == wanted:
            return planned
    raise AssertionError(wanted)


def test_the_config_says_the_batch_the_dtypes_and_the_stage() -> None:
    planned = first(zero_stage=3, offload_parameters="cpu")
    config = deepspeed_config(planned, learning_rate=3e-4, gradient_clipping=0.5)
    ledger = planned.ledger
    assert config["train_batch_size"] == 24
    assert config["train_micro_batch_size_per_gpu"] == ledger.micro_batch_size
    assert config["gradient_accumulation_steps"] == ledger.gradient_accumulation_steps
    assert config["gradient_clipping"] == 0.5
    assert config["optimizer"]["params"]["lr"] == 3e-4
    assert config["bf16"] == {"enabled": True}
    assert config["data_types"] == {"grad_accum_dtype": "fp32"}
    assert config["communication_data_type"] == "fp32"
    place = {"device": "cpu", "pin_memory": True}
    assert config["zero_optimization"] == {
        "stage": 3,
        "offload_optimizer": place,
        "offload_param": place,
        "stage3_gather_16bit_weights_on_model_save": True,
    }


@pytest.mark.parametrize(
    ("dtype", "sent", "alone", "with_ulysses"),
    [
        ("bf16", None, {}, {}),
        ("bf16", "fp32", {"communication_data_type": "fp32"}, {}),
        ("bf16", "bf16", {}, {"seq_parallel_communication_data_type": "bf16"}),
        ("fp32", "bf16", {"communication_data_type": "bf16"}, {"seq_parallel_communication_data_type": "bf16"}),
    ],
)
def test_the_dtype_that_is_sent_is_asked_for_where_deepspeed_would_send_another(
    dtype: str, sent: str | None, alone: dict[str, str], with_ulysses: dict[str, str]
) -> None:
    for size, expected in ((1, alone), (2, with_ulysses)):
        planned = first(sequence_parallel_size=size, zero_stage=1)
        way = replace(planned.training, dtype=dtype, grad_accum_dtype=None, communication_dtype=sent)  # type: ignore[arg-type]
        config = deepspeed_config(replace(planned, training=way))
        assert {key: value for key, value in config.items() if "communication" in key} == expected


def test_stage_2_asks_for_the_overlap_that_its_time_assumes() -> None:
    planned = first(zero_stage=2, offload_optimizer="none")
    assert planned.training.overlaps_communication
    assert deepspeed_config(planned)["zero_optimization"] == {"stage": 2, "overlap_comm": True}


def test_a_pipeline_that_recomputes_says_so_in_the_config_and_others_to_the_script() -> None:
    piped = first(pipeline_parallel_size=2, recompute="full")
    assert deepspeed_config(piped)["pipeline"] == {"activation_checkpoint_interval": 1}
    assert not any("checkpoint" in said for said in beyond_the_config(piped))
    alone = first(pipeline_parallel_size=1, recompute="full")
    assert "pipeline" not in deepspeed_config(alone)
    assert any(said.startswith("checkpoint the activations") for said in beyond_the_config(alone))


def test_everything_that_no_config_says_is_said() -> None:
    said = "; ".join(beyond_the_config(first(tensor_parallel_size=2, pipeline_parallel_size=2)))
    assert "tensor parallel 2, with Megatron's sequence parallel" in said
    assert "PipelineModule of 2 stages" in said and "FlashAttention" in said
    assert "Ulysses over 2 ranks" in "; ".join(beyond_the_config(first(sequence_parallel_size=2)))
    assert "ring attention over 2 ranks" in "; ".join(beyond_the_config(first(context_parallel_size=2)))


def test_the_launch_is_told_without_the_ones() -> None:
    planned = first(tensor_parallel_size=2, pipeline_parallel_size=2, context_parallel_size=1)
    assert launch_degrees(planned) == "--world-size 12 --tp 2 --pp 2"


def test_the_text_is_strict_json_with_numbers_on_one_line() -> None:
    config = deepspeed_config(first(zero_stage=1))
    text = config_text(config)
    assert json.loads(text) == config
    assert '"betas": [0.9, 0.95]' in text and text.endswith("}\n")


def test_an_optimizer_without_a_config_is_refused_with_those_that_have_one() -> None:
    planned = first(zero_stage=1)
    other = replace(planned, training=replace(planned.training, optimizer="adagrad"))
    with pytest.raises(UsageError, match="no config is written for the optimizer adagrad") as caught:
        deepspeed_config(other)
    assert caught.value.remedy is not None and "adamw, adam, lion" in caught.value.remedy
