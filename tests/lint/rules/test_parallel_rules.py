"""The rules about pipelines, meshes, experts and tensor parallelism (DSA6xx) where launch, release or another key decides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from ds_accum.config.launch import Launch
from ds_accum.lint import Severity, lint_text
from ds_accum.lint.diagnostic import Diagnostic, When
from ds_accum.lint.rules.invalid_expert_parallel import ACTIVATIONS, PRESETS

PIPELINE = {"world_size": 2, "pipeline_parallel_size": 2}
AUTOTP = {"tensor_parallel": {"autotp_size": 2, "preset_model": "mixtral"}}


def expert(**settings: Any) -> dict[str, Any]:
    return {"expert_parallel": {"enabled": True, **settings}}


def findings(code: str, config: dict[str, Any], **launch: Any) -> list[Diagnostic]:
    text = json.dumps({"train_micro_batch_size_per_gpu": 1, **config})
    found = lint_text(text, launches=[Launch(**{"world_size": 1, "framework": "raw", **launch})])
    assert [item for item in found if item.code == "DSA000"] == []
    return [item for item in found if item.code == code]


# --- pipelines --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stage", "count"), [(0, 0), (1, 0), (2, 1), (3, 1), ("2", 1)])
def test_a_pipeline_takes_zero_up_to_stage_1(stage: object, count: int) -> None:
    config = {"zero_optimization": {"stage": stage}}
    assert len(findings("DSA601", config, **PIPELINE)) == count
    assert findings("DSA601", config, world_size=2) == []


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({"pipe_partitioned": "true"}, 1),
        ({"grad_partitioned": 1}, 1),
        ({"grad_partitioned": None, "pipe_partitioned": "auto"}, 2),
        ({"activation_checkpoint_interval": "1"}, 1),
        ({"activation_checkpoint_interval": None}, 1),
        ({"activation_checkpoint_interval": -0.5}, 0),
        ({"activation_checkpoint_interval": True}, 0),
        ({"use_reentrant": "x", "stages": 7}, 0),
    ],
)
def test_the_settings_of_a_pipeline_are_looked_at_in_a_pipeline(settings: dict[str, Any], count: int) -> None:
    assert len(findings("DSA602", {"pipeline": settings}, **PIPELINE)) == count
    assert findings("DSA602", {"pipeline": settings}) == []


def test_layers_are_counted_while_the_engine_starts_since_0_14_5() -> None:
    config = {"pipeline": {"activation_checkpoint_interval": 1.5}}
    for version, when in (((0, 14, 4), When.FIRST_STEP), ((0, 14, 5), When.START)):
        assert [item.when for item in findings("DSA602", config, deepspeed_version=version, **PIPELINE)] == [when]


# --- the mesh of the config -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "sequence", "world_size", "count"),
    [
        (2, 1, 2, 0),
        (1, 2, 2, 0),
        (2, 2, 2, 1),
        (1, 1, 2, 1),
        (2, 2, None, 0),
        ("2", 1, None, 1),
        (2, 0, 2, 1),
        (-1, 2, 2, 1),
        (2, None, 2, 1),
    ],
)
def test_a_mesh_must_fill_the_world(data: object, sequence: object, world_size: int | None, count: int) -> None:
    config = {"data_parallel_size": data, "sequence_parallel_size": sequence}
    assert len(findings("DSA603", config, world_size=world_size)) == count
    assert findings("DSA603", {"data_parallel_size": data}, world_size=world_size) == []
    assert findings("DSA603", config, world_size=world_size, deepspeed_version=(0, 14, 5)) == []


# --- AutoTP -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "world_size", "count"), [(2, 2, 0), (3, 2, 1), (4, 2, 1), (3, 4, 1), (-1, 2, 0), (0, 2, 0), (5, None, 0)]
)
def test_the_size_of_autotp_divides_the_world(size: int, world_size: int | None, count: int) -> None:
    config = {"tensor_parallel": {"autotp_size": size}}
    assert len(findings("DSA605", config, world_size=world_size)) == count
    assert findings("DSA605", config, world_size=world_size, deepspeed_version=(0, 15, 4)) == []


def test_a_size_in_quotes_is_read_since_0_18_6() -> None:
    for size in ("2", "auto"):
        (item,) = findings("DSA605", {"tensor_parallel": {"autotp_size": size}}, world_size=2)
        assert "must be an integer" in item.message
        assert not findings(
            "DSA605", {"tensor_parallel": {"autotp_size": size}}, world_size=2, deepspeed_version=(0, 18, 5)
        )
    # Before, it counts as the number that the block's model makes of it.
    (item,) = findings("DSA605", {"tensor_parallel": {"autotp_size": "3"}}, world_size=2, deepspeed_version=(0, 18, 5))
    assert "does not divide" in item.message


@pytest.mark.parametrize(("nested", "count"), [(1, 0), (2, 0), ("2", 0), (4, 1), ("4", 1), (0, 1), ("auto", 0)])
def test_the_nested_size_is_1_or_the_same(nested: object, count: int) -> None:
    config = {"tensor_parallel": {"autotp_size": 2, "tp": {"tp_size": nested}}}
    assert len(findings("DSA605", config, world_size=2)) == count
    assert findings("DSA605", {"tensor_parallel": {"tp": {"tp_size": nested}}}, world_size=2) == []


# --- AutoEP -----------------------------------------------------------------------------------------------------------


@pytest.mark.engine
def test_the_presets_and_activations_are_those_of_the_installed_deepspeed() -> None:
    code = (
        "import json\n"
        "from deepspeed.module_inject.auto_ep_presets.registry import PRESET_MODELS\n"
        "from deepspeed.moe.ep_experts import EXPERT_ACTIVATIONS\n"
        "print(json.dumps([list(PRESET_MODELS), list(EXPERT_ACTIVATIONS)]))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [list(PRESETS), list(ACTIVATIONS)]


REFUSED = [
    {"autoep_size": 0},
    {"autoep_size": "1"},
    {"autoep_size": 1.5},
    {"autoep_size": None},
    {"expert_tensor_parallel_size": "1"},
    {"validate_folding_routing": "true"},
    {"async_split_plan": 1},
    {"score_apply": "both"},
    {"score_apply": ["pre"]},
    {"combine_impl": None},
    {"row_weighting_impl": "x"},
    {"gate_up_impl": "x"},
    {"comm_backend": "nccl"},
    {"score_func": "relu"},
    {"expert_activation": "gelu"},
    {"expert_activation": []},
    {"preset_model": "llama"},
    {"preset_model": ["mixtral"]},
    {"comm_num_sm": 0},
    {"comm_num_sm": 1.5},
    {"comm_qp_margin": -1},
    {"comm_max_tokens_per_rank": -1},
    {"num_limited_groups": 0},
    {"num_limited_groups": "2"},
    {"num_expert_groups": 0},
    {"num_limited_groups": 4, "num_expert_groups": 2},
    {"expert_w1": ""},
    {"expert_w2": "a.b"},
    {"num_experts_attr": 5},
    {"shared_experts_gate_pattern": 3},
    {"has_shared_experts": 1},
    {"routed_scaling_factor": "1.0"},
    {"routed_scaling_factor": None},
    {"moe_layer_pattern": 5},
    {"moe_layer_pattern": "("},
    {"gate_up_impl": "fused", "use_grouped_mm": False},
    {"comm_backend": "deepep"},
    {"row_weighting_impl": "fused"},
    {"row_weighting_impl": "fused", "comm_backend": "deepep", "comm_max_tokens_per_rank": 8},
]

ACCEPTED = [
    {},
    {"autoep_size": True},
    {"num_limited_groups": 2.5, "num_expert_groups": 3},
    {"num_limited_groups": 2, "num_expert_groups": None},
    {"comm_num_sm": True},
    {"expert_w3": None},
    {"gate_up_impl": "fused", "use_grouped_mm": "false"},
    {"comm_backend": "deepep", "comm_max_tokens_per_rank": 128},
    {"combine_impl": "fused_weighted_sum"},
    {"routed_scaling_factor": True},
    {"top_k": "x", "route_norm": "x", "route_scale": "x", "use_grouped_mm": "x"},
    {"load_balance_coeff": None},
]


@pytest.mark.parametrize("settings", REFUSED, ids=repr)
def test_a_setting_of_autoep_that_is_refused_has_one_finding_while_it_is_on(settings: dict[str, Any]) -> None:
    (item,) = findings("DSA604", expert(**settings))
    assert item.when is When.START and item.severity is Severity.ERROR
    assert len(findings("DSA604", expert(**settings, enabled="false"))) == 1, "a string is on"
    for off in (False, None, 0, []):
        assert findings("DSA604", expert(**{**settings, "enabled": off})) == []
    assert findings("DSA604", expert(**settings), deepspeed_version=(0, 19, 1)) == []


@pytest.mark.parametrize("settings", ACCEPTED, ids=repr)
def test_a_setting_of_autoep_that_is_accepted_has_none(settings: dict[str, Any]) -> None:
    assert findings("DSA604", expert(**settings)) == []


def test_a_load_balancing_coefficient_is_refused_while_the_config_loads_and_even_if_autoep_is_off() -> None:
    for value in (0.1, 0, False, "auto"):
        (item,) = findings("DSA604", {"expert_parallel": {"load_balance_coeff": value}})
        assert item.when is When.LOAD


@pytest.mark.parametrize(
    ("size", "world_size", "pipeline", "count"),
    [(2, 2, 1, 0), (3, 2, 1, 1), (2, 2, 2, 1), (2, 4, 2, 0), (3, None, 1, 0)],
)
def test_the_experts_divide_a_pipeline_stage(size: int, world_size: int | None, pipeline: int, count: int) -> None:
    found = findings("DSA604", expert(autoep_size=size), world_size=world_size, pipeline_parallel_size=pipeline)
    assert len(found) == count


@pytest.mark.parametrize(
    ("settings", "others", "at"),
    [
        ({"autoep_size": 1}, {}, ("expert_parallel", "autoep_size")),
        ({"async_split_plan": True}, {}, ("expert_parallel", "async_split_plan")),
        ({"combine_impl": "fused_weighted_sum"}, {}, ("expert_parallel", "combine_impl")),
        ({"preset_model": "qwen3_moe"}, {}, ("expert_parallel", "preset_model")),
        ({}, {"use_data_before_expert_parallelism": True}, ("use_data_before_expert_parallelism",)),
        ({}, {"compile": {"deepcompile": True}}, ("compile", "deepcompile")),
        (
            {},
            {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}}},
            ("zero_optimization", "offload_optimizer"),
        ),
    ],
)
def test_autoep_beside_autotp_does_without_some_features(
    settings: dict[str, Any], others: dict[str, Any], at: tuple[str, ...]
) -> None:
    block = expert(**{"autoep_size": 2, **settings})
    (item,) = findings("DSA604", {**block, **AUTOTP, **others}, world_size=2)
    assert item.path == at
    if settings.get("preset_model") is None:
        assert findings("DSA604", {**block, **others}, world_size=2) == []


def test_the_fused_reduction_came_with_0_19_7() -> None:
    config = expert(combine_impl="fused_weighted_sum")
    assert len(findings("DSA604", config, deepspeed_version=(0, 19, 6))) == 1
    assert findings("DSA604", config, deepspeed_version=(0, 19, 7)) == []


# --- nothing fails on nonsense ----------------------------------------------------------------------------------------

ODD = (None, True, 0, -1, 10**400, 1e308, "", "auto", "x", [], [[]], {}, {"": 0})


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_nonsense_breaks_no_rule(odd: object) -> None:
    keys = [key for settings in (*REFUSED, *ACCEPTED) for key in settings]
    for key in keys:
        assert findings("DSA000", {**expert(**{key: odd}), **AUTOTP}, world_size=2) == []
    for config in (
        {"expert_parallel": odd},
        {"tensor_parallel": odd},
        {"tensor_parallel": {"autotp_size": odd, "tp": odd}},
        {"pipeline": odd},
        {"pipeline": {"pipe_partitioned": odd, "activation_checkpoint_interval": odd}},
        {"data_parallel_size": odd, "sequence_parallel_size": odd},
    ):
        assert findings("DSA000", config, **PIPELINE) == []
