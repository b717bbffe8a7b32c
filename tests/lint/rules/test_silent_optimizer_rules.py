"""The rules about what DeepSpeed takes silently for something else, where the launch, the release or a neighbour decides."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ds_accum.config.launch import Launch
from ds_accum.lint import Severity, lint_text
from ds_accum.lint.diagnostic import Diagnostic

NOTHING_PASSED = {"client_optimizer": False, "client_scheduler": False}
ADAMW = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}


def scheduler(kind: str, /, **params: Any) -> dict[str, Any]:
    return {"scheduler": {"type": kind, "params": params}}


def findings(code: str, config: dict[str, Any], **launch: Any) -> list[Diagnostic]:
    text = json.dumps({"train_micro_batch_size_per_gpu": 8, **config})
    found = lint_text(text, launches=[Launch(**{"world_size": 2, "framework": "raw", **launch})])
    assert [item for item in found if item.code == "DSA000"] == []
    return [item for item in found if item.code == code]


# --- optimizers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "severity"),
    [
        ({"weight_decay": 0.1}, Severity.INFO),
        ({"weight_decay": 0.0}, None),
        ({}, None),
        ({"weight_decay": "0.1"}, None),
        ({"weight_decay": 0.1, "adam_w_mode": True}, None),
        ({"weight_decay": 0.1, "adam_w_mode": False}, None),
        ({"weight_decay": 0.1, "adam_w_mode": "False"}, Severity.WARNING),
        ({"torch_adam": "false"}, Severity.WARNING),
    ],
)
def test_adam_is_reported_where_its_weight_decay_differs(params: dict[str, Any], severity: Severity | None) -> None:
    found = findings("DSA530", {"optimizer": {"type": "Adam", "params": params}}, **NOTHING_PASSED)
    assert [item.severity for item in found] == ([severity] if severity else [])


def test_a_missing_learning_rate_is_that_of_the_class_behind_the_type() -> None:
    offloaded = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
    for config, rate, name in (
        ({"optimizer": {"type": "NAdam"}}, "0.002", "torch.optim.NAdam"),
        ({"optimizer": {"type": "Muon"}}, "0.02 for matrices", "MuonWithAuxAdam"),
        ({"optimizer": {"type": "Adagrad"}, **offloaded}, "0.01", "DeepSpeedCPUAdagrad"),
    ):
        (found,) = findings("DSA531", config, **NOTHING_PASSED)
        assert rate in found.message and name in found.message
    assert findings("DSA531", {"optimizer": {"type": "Muon", "params": {"muon_lr": 0.1}}}) == []


def test_a_block_without_a_type_is_reported_once() -> None:
    nameless = {"optimizer": {"params": {"lr": 1e-4}}, "scheduler": {"name": "WarmupLR"}}
    assert [item.path for item in findings("DSA532", nameless)] == [("optimizer",), ("scheduler", "name")]
    assert findings("DSA532", {"optimizer": {}, "scheduler": {}}) == []
    # That one does not start, which another rule says.
    sharded = {"optimizer": {"name": "AdamW"}, "zero_optimization": {"stage": 1}}
    assert findings("DSA532", sharded, client_optimizer=False) == []


def test_the_scheduler_of_the_config_came_first_in_older_releases() -> None:
    config = {**ADAMW, **scheduler("WarmupLR")}
    assert len(findings("DSA534", config, client_scheduler=True)) == 1
    assert findings("DSA534", config, client_scheduler=True, deepspeed_version=(0, 14, 4)) == []


def test_a_cpu_optimizer_is_no_problem_where_the_parameters_are_on_the_cpu() -> None:
    config = {**ADAMW, "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}}
    assert len(findings("DSA536", config, **NOTHING_PASSED)) == 1
    assert findings("DSA536", config, accelerator="cpu", **NOTHING_PASSED) == []
    assert findings("DSA536", {**config, "optimizer": {"type": "SGD"}}, **NOTHING_PASSED) == []


# --- schedulers -------------------------------------------------------------------------------------------------------


def test_warmup_lr_takes_the_optimizers_rate_since_0_17_2() -> None:
    config = {**ADAMW, **scheduler("WarmupLR", warmup_num_steps=10)}
    assert findings("DSA540", config, **NOTHING_PASSED) == []
    (found,) = findings("DSA540", config, deepspeed_version=(0, 17, 1), **NOTHING_PASSED)
    assert "warmup_max_lr 0.001 (the default), not to the optimizer's lr 0.0001" in found.message


@pytest.mark.parametrize(
    ("peak", "count"), [(1e-4, 0), (6e-4, 1), (None, 0), ([1e-3, 1e-4], 0), ("1e-3", 0), (10**400, 0), (True, 0)]
)
def test_a_peak_is_compared_where_it_is_a_number(peak: Any, count: int) -> None:
    config = {**ADAMW, **scheduler("WarmupDecayLR", total_num_steps=5000, warmup_max_lr=peak)}
    assert len(findings("DSA540", config, **NOTHING_PASSED)) == count


def test_a_default_peak_that_is_the_optimizers_rate_is_no_matter() -> None:
    config = {"optimizer": {"type": "AdamW"}, **scheduler("WarmupDecayLR", total_num_steps=5000)}
    assert findings("DSA540", config, **NOTHING_PASSED) == []


def test_a_rate_that_hugging_face_fills_in_is_lost_to_a_default_peak() -> None:
    config = {
        "train_micro_batch_size_per_gpu": "auto",
        "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
        **scheduler("WarmupDecayLR", total_num_steps="auto"),
    }
    (found,) = findings("DSA540", config, framework="huggingface", **NOTHING_PASSED)
    assert "not to the learning rate that the framework fills in" in found.message
    config["scheduler"]["params"]["warmup_max_lr"] = "auto"
    assert findings("DSA540", config, framework="huggingface", **NOTHING_PASSED) == []


def test_what_depends_on_the_script_says_so() -> None:
    (found,) = findings("DSA541", {**ADAMW, **scheduler("WarmupCosineLR", total_num_steps=10)})
    assert found.message.endswith(", unless the script passes its own scheduler")


@pytest.mark.parametrize(
    ("value", "count"), [("log", 0), ("linear", 0), ("Linear", 1), ("cosine", 1), (None, 1), ([], 0)]
)
def test_a_warmup_type_is_log_or_linear(value: Any, count: int) -> None:
    config = {**ADAMW, **scheduler("WarmupLR", warmup_type=value)}
    assert len(findings("DSA542", config, **NOTHING_PASSED)) == count


# --- offload ----------------------------------------------------------------------------------------------------------


def test_the_deprecated_pin_switch_matters_where_the_default_differs() -> None:
    config = {**ADAMW, "zero_optimization": {"stage": 2, "cpu_offload": True, "cpu_offload_use_pin_memory": True}}
    assert findings("DSA552", config, **NOTHING_PASSED) == []
    assert len(findings("DSA552", config, deepspeed_version=(0, 19, 4), **NOTHING_PASSED)) == 1


# --- parallel sizes ---------------------------------------------------------------------------------------------------


def test_autosp_and_an_mpu_form_the_groups_that_the_key_does_not() -> None:
    config = {"sequence_parallel_size": 2}
    (found,) = findings("DSA606", config)
    assert found.severity is Severity.WARNING and found.message.endswith(", unless the script passes an mpu")
    assert findings("DSA606", {**config, "compile": {"deepcompile": True, "passes": ["autosp"]}}) == []
    assert findings("DSA606", config, world_size=8, sequence_parallel_size=2) == []
    assert findings("DSA606", config, world_size=None)[0].message.startswith("sequence_parallel_size 2 forms no groups")


@pytest.mark.parametrize(("stage", "count"), [(0, 1), (1, 1), (2, 1), (3, 0)])
def test_a_mesh_keeps_gradients_apart_below_stage_3(stage: int, count: int) -> None:
    sizes = {"data_parallel_size": 1, "sequence_parallel_size": 2}
    assert len(findings("DSA607", {**sizes, "zero_optimization": {"stage": stage}})) == count


def test_a_mesh_that_does_not_fill_the_world_is_the_business_of_another_rule() -> None:
    assert findings("DSA607", {"data_parallel_size": 2, "sequence_parallel_size": 2}) == []


@pytest.mark.parametrize("size", ["2", None, 2.0, [2], 10**400])
def test_a_data_parallel_size_of_any_kind_is_not_read(size: Any) -> None:
    assert len(findings("DSA608", {"data_parallel_size": size}, world_size=8)) == 1
