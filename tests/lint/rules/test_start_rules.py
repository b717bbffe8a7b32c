"""The rules about what fails at start or at the first step, where the launch, the release or another setting decides."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ds_accum.config.launch import Launch
from ds_accum.lint import Severity, lint_text
from ds_accum.lint.diagnostic import Diagnostic, When

ADAM = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
CPU = {"offload_optimizer": {"device": "cpu"}}
SCHEDULE = {
    "min_value": 128,
    "max_value": 2048,
    "schedule_type": "fixed_linear",
    "schedule_config": {"require_steps": 1000, "seq_per_step": 16},
}


def zero(stage: int, /, **settings: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": stage, **settings}}


def random_ltd(**settings: Any) -> dict[str, Any]:
    whole = {"enabled": True, "total_layer_num": 24, "random_ltd_layer_num": 22, "random_ltd_schedule": SCHEDULE}
    return {"data_efficiency": {"data_routing": {"random_ltd": {**whole, **settings}}}}


def findings(code: str, config: dict[str, Any], **launch: Any) -> list[Diagnostic]:
    text = json.dumps({"train_batch_size": 8, **config})
    found = lint_text(text, launches=[Launch(**{"world_size": 1, "framework": "raw", **launch})])
    assert [item for item in found if item.code == "DSA000"] == []
    return [item for item in found if item.code == code]


# --- checkpoint.writer ------------------------------------------------------------------------------------------------


def test_a_writer_is_asked_for_its_ranks_below_stage_3_and_without_an_mpu() -> None:
    writer = {"checkpoint": {"writer": {}}}
    for stage in (0, 1, 2):
        (item,) = findings("DSA015", {**writer, **zero(stage)})
        assert item.severity is Severity.WARNING
    assert findings("DSA015", {**writer, **zero(3)}) == []
    assert findings("DSA015", writer, world_size=2, pipeline_parallel_size=2) == []
    assert findings("DSA015", writer, deepspeed_version=(0, 17, 0)) == []
    assert findings("DSA015", {"checkpoint": {"writer": None}}) == []


# --- random_ltd -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "when"),
    [
        ({"random_ltd_schedule": {**SCHEDULE, "schedule_config": {}}}, When.FIRST_STEP),
        ({"random_ltd_schedule": {**SCHEDULE, "schedule_config": {}, "min_value": 2048}}, None),
        ({"random_ltd_schedule": None}, When.START),
        (
            {"random_ltd_schedule": {**SCHEDULE, "schedule_config": {"require_steps": 0, "seq_per_step": 16}}},
            When.FIRST_STEP,
        ),
        ({"layer_token_lr_schedule": {"enabled": True}}, When.START),
        ({"enabled": "false", "random_ltd_schedule": {}}, When.START),
        ({"enabled": False, "random_ltd_schedule": {}}, None),
        ({}, None),
    ],
)
def test_random_token_dropping_needs_its_whole_schedule(settings: dict[str, Any], when: When | None) -> None:
    found = findings("DSA016", {**ADAM, **random_ltd(**settings)})
    assert [item.when for item in found] == ([] if when is None else [when])


@pytest.mark.parametrize("odd", [None, 5, "x", [], True])
def test_odd_values_of_random_token_dropping_break_nothing(odd: object) -> None:
    for config in (
        {"data_efficiency": odd},
        {"data_efficiency": {"data_routing": odd}},
        {"data_efficiency": {"data_routing": {"random_ltd": odd}}},
        random_ltd(random_ltd_schedule=odd),
        random_ltd(random_ltd_schedule={**SCHEDULE, "schedule_config": odd}),
        random_ltd(layer_token_lr_schedule=odd),
    ):
        findings("DSA016", config)


# --- precision --------------------------------------------------------------------------------------------------------


def test_a_disabled_fp16_block_was_not_read_before_0_17_1() -> None:
    config = {**ADAM, "fp16": {"enabled": False, "auto_cast": True}}
    (item,) = findings("DSA017", config)
    assert item.severity is Severity.WARNING and "the model is in fp32" in item.message
    assert findings("DSA017", config, deepspeed_version=(0, 17, 0)) == []


def test_what_hugging_face_may_switch_on_is_not_said_to_be_off() -> None:
    config = {**ADAM, "train_batch_size": "auto", "fp16": {"enabled": "auto", "auto_cast": True}}
    assert findings("DSA017", config, framework="huggingface") == []
    assert len(findings("DSA017", {**config, "train_batch_size": 8})) == 1


def test_the_dtype_of_buffers_is_read_for_half_precision_only() -> None:
    odd = {"data_types": {"buffer_dtype": "auto"}}
    assert findings("DSA305", odd) == []
    assert len(findings("DSA305", {**odd, "fp16": {"enabled": True}})) == 1
    assert findings("DSA305", {**odd, "bf16": {"enabled": True}}, deepspeed_version=(0, 19, 1)) == []


@pytest.mark.parametrize(("level", "meant"), [("WARN", "warning"), ("fatal", "critical"), ("loud", None), (10, None)])
def test_a_level_by_another_name_is_translated(level: object, meant: str | None) -> None:
    (item,) = findings("DSA014", {"log_level": level})
    assert item.when is When.START
    assert item.help == (f'write "{meant}"' if meant else "use one of these, or leave it out")
    assert findings("DSA014", {"log_level": level}, deepspeed_version=(0, 19, 2)) == []


# --- the optimizer ----------------------------------------------------------------------------------------------------


def test_without_an_optimizer_only_training_fails_and_only_if_it_is_known_that_there_is_none() -> None:
    for stage in (0, 3):
        (item,) = findings("DSA212", zero(stage), client_optimizer=False)
        assert item.severity is Severity.WARNING and item.message.endswith("if the script trains")
        assert findings("DSA212", zero(stage)) == []
        assert findings("DSA212", zero(stage), client_optimizer=True) == []
    assert findings("DSA212", zero(1), client_optimizer=False) == []  # does not even start


def test_legacy_fusion_matters_where_adam_is_wrapped_without_zero() -> None:
    legacy = {"optimizer": {"type": "Adam", "params": {"lr": 1e-4}, "legacy_fusion": True}}
    fp16, bf16 = {"fp16": {"enabled": True}}, {"bf16": {"enabled": True}}
    for precision in (fp16, bf16):
        (item,) = findings("DSA507", {**legacy, **precision}, client_optimizer=False)
        assert item.severity is Severity.ERROR
        (item,) = findings("DSA507", {**legacy, **precision})
        assert item.severity is Severity.WARNING
        assert findings("DSA507", {**legacy, **precision, **zero(1)}) == []
        assert findings("DSA507", {**legacy, **precision, **zero(0, **CPU)}) == []
    assert findings("DSA507", legacy) == []
    assert findings("DSA507", {**legacy, **bf16}, deepspeed_version=(0, 17, 5)) == []
    torchs = {"optimizer": {"type": "Adam", "params": {"torch_adam": True}, "legacy_fusion": True}}
    assert findings("DSA507", {**torchs, **fp16}) == []


def test_an_optimizer_that_needs_more_fails_when_it_is_first_asked_to_step() -> None:
    lbfgs, sparse = {"optimizer": {"type": "LBFGS"}}, {"optimizer": {"type": "SparseAdam"}}
    bf16 = {"bf16": {"enabled": True}}
    assert [item.when for item in findings("DSA508", lbfgs)] == [When.FIRST_STEP]
    assert [item.when for item in findings("DSA508", {**lbfgs, **bf16})] == [When.START]
    assert [item.when for item in findings("DSA508", {**lbfgs, **bf16, **zero(2)})] == [When.FIRST_STEP]
    assert [item.when for item in findings("DSA508", {**sparse, **zero(1)})] == [When.FIRST_STEP]
    # Without ZeRO and in fp32 it gets the gradients of the model, which may be sparse.
    assert findings("DSA508", sparse) == []
    assert findings("DSA508", lbfgs, client_optimizer=True) == []


# --- ZenFlow ----------------------------------------------------------------------------------------------------------


def test_zenflow_divides_by_an_interval_that_is_not_given() -> None:
    config = {**ADAM, **zero(2, **CPU, zenflow={})}
    assert [item.severity for item in findings("DSA213", config)] == [Severity.ERROR]
    (unknown,) = findings("DSA213", config, framework=None)
    assert unknown.severity is Severity.WARNING and "scale_wrt_gas=False" in unknown.message
    assert findings("DSA213", config, framework="huggingface") == []
    assert findings("DSA213", config, deepspeed_version=(0, 18, 2)) == []
    assert [item.severity for item in findings("DSA213", {**ADAM, **zero(3, **CPU, zenflow={})})] == [Severity.WARNING]
    assert findings("DSA213", {**ADAM, **zero(0, zenflow={})}) == []


def test_zenflow_replaces_accumulation_that_is_written_or_derived() -> None:
    zenflow = zero(2, **CPU, zenflow={"update_interval": 2})
    (derived,) = findings("DSA214", {**ADAM, **zenflow, "train_micro_batch_size_per_gpu": 2})
    assert "gradient_accumulation_steps 4 (derived)" in derived.message
    (more,) = findings(
        "DSA214", {**ADAM, **zero(2, **CPU, zenflow={"update_interval": 8}), "gradient_accumulation_steps": 4}
    )
    assert "from more samples" in more.message
    # The usual way to use it: the interval is the only accumulation there is.
    assert findings("DSA214", {**ADAM, **zenflow}) == []
    assert findings("DSA214", {**ADAM, **zenflow, "gradient_accumulation_steps": 2}) == []
    assert findings("DSA214", {**ADAM, **zenflow, "train_micro_batch_size_per_gpu": 2}, world_size=None) == []


# --- pipelines --------------------------------------------------------------------------------------------------------


def test_a_pipeline_is_timed_by_any_of_three_switches() -> None:
    in_stages = {"world_size": 2, "pipeline_parallel_size": 2}
    assert (
        len(findings("DSA018", {"wall_clock_breakdown": True, "flops_profiler": {"enabled": True}}, **in_stages)) == 2
    )
    tuned = {"autotuning": {"enabled": True}}
    assert findings("DSA018", tuned, **in_stages) == []
    assert len(findings("DSA018", {**tuned, "gradient_accumulation_steps": 2}, **in_stages)) == 1
    assert findings("DSA018", {"wall_clock_breakdown": True}, **in_stages, deepspeed_version=(0, 18, 2)) == []
    assert findings("DSA018", {"wall_clock_breakdown": "true", "flops_profiler": []}, **in_stages) == []


def test_muon_in_bf16_depends_on_the_wrapper_and_on_model_parallel_ranks() -> None:
    muon = {"optimizer": {"type": "Muon", "params": {"lr": 0.02}}, "bf16": {"enabled": True}}
    fp32 = {**zero(1), "data_types": {"grad_accum_dtype": "fp32"}}
    in_stages, in_slices = ({"world_size": 2, f"{kind}_parallel_size": 2} for kind in ("pipeline", "tensor"))
    assert len(findings("DSA506", muon, **in_stages)) == 1
    assert findings("DSA506", muon, **in_slices) == []
    assert len(findings("DSA506", {**muon, **fp32}, **in_slices)) == 1
    assert findings("DSA506", {**muon, **fp32}) == []
    assert findings("DSA506", {**muon, **zero(1)}, **in_stages) == []
    assert findings("DSA506", muon, **in_stages, deepspeed_version=(0, 19, 7)) == []
