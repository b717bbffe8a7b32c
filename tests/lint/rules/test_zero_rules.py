"""The rules about ZeRO (DSA2xx) where the launch or the release decides: what is certain, and what only may be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ds_accum.config.launch import Launch
from ds_accum.lint import Severity, lint_text
from ds_accum.lint.diagnostic import Diagnostic, When

ADAM = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
SGD = {"optimizer": {"type": "SGD", "params": {"lr": 0.1}}, "zero_allow_untested_optimizer": True}
CPU = {"offload_optimizer": {"device": "cpu"}}
ZENFLOW = {"zenflow": {"select_strategy": "step", "select_interval": 4, "update_interval": 2}}
BF16_ON_FP32 = {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}


def zero(stage: int, /, **settings: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": stage, **settings}}


def findings(code: str, config: dict[str, Any], **launch: Any) -> list[Diagnostic]:
    text = json.dumps({"train_batch_size": 8, **config})
    found = lint_text(text, launches=[Launch(world_size=1, framework="raw", **launch)])
    assert [item for item in found if item.code == "DSA000"] == []
    return [item for item in found if item.code == code]


# What ZeRO-3 refuses only once it wraps an optimizer; ZeRO-2 does not start without one at all.
WITH_AN_OPTIMIZER = [
    pytest.param("DSA204", {"gradient_predivide_factor": 2}, {}, id="DSA204"),
    pytest.param("DSA205", {"prescale_gradients": True}, {}, id="DSA205"),
    pytest.param("DSA304", {"fp16": {"enabled": True, "fp16_master_weights_and_grads": True}}, {}, id="DSA304"),
    pytest.param("DSA209", {}, {**CPU, "overlap_comm": False, "zenflow": {"offload": True}}, id="DSA209"),
]


@pytest.mark.parametrize(("code", "config", "settings"), WITH_AN_OPTIMIZER)
def test_what_needs_an_optimizer_to_fail_depends_on_the_script_at_stage_3(
    code: str, config: dict[str, Any], settings: dict[str, Any]
) -> None:
    config = {**config, **zero(3, **settings)}
    assert findings(code, config, client_optimizer=False) == []
    assert [item.severity for item in findings(code, config, client_optimizer=True)] == [Severity.ERROR]
    assert [item.severity for item in findings(code, {**config, **ADAM})] == [Severity.ERROR]
    (unknown,) = findings(code, config)
    assert unknown.severity is Severity.WARNING
    assert unknown.message.endswith(", if the script passes an optimizer")


@pytest.mark.parametrize(("code", "config", "settings"), WITH_AN_OPTIMIZER)
def test_what_needs_an_optimizer_to_fail_is_certain_at_stage_2(
    code: str, config: dict[str, Any], settings: dict[str, Any]
) -> None:
    found = findings(code, {**config, **zero(2, **settings)})
    assert found and {item.severity for item in found} == {Severity.ERROR}


def test_nvme_without_a_path_is_certain_for_parameters_and_needs_an_optimizer_for_its_states() -> None:
    nvme = {"device": "nvme"}
    (parameters,) = findings("DSA208", zero(3, offload_param=nvme), client_optimizer=False)
    assert parameters.severity is Severity.ERROR
    assert findings("DSA208", zero(3, offload_optimizer=nvme), client_optimizer=False) == []
    (states,) = findings("DSA208", zero(3, offload_optimizer=nvme))
    assert states.severity is Severity.WARNING
    assert findings("DSA208", zero(2, offload_optimizer=nvme, offload_param=nvme)) == []


def test_zero_without_an_optimizer_is_only_said_of_a_script_that_passes_none() -> None:
    for stage in (1, 2):
        assert len(findings("DSA211", zero(stage), client_optimizer=False)) == 1
        assert findings("DSA211", zero(stage)) == []
        assert findings("DSA211", zero(stage), client_optimizer=True) == []
    assert findings("DSA211", zero(3), client_optimizer=False) == []


@pytest.mark.parametrize(
    ("code", "settings"),
    [("DSA206", {"allgather_bucket_size": 3}), ("DSA207", {"legacy_stage1": True})],
)
def test_zero_1_that_is_really_another_optimizer_has_none_of_its_refusals(code: str, settings: dict[str, Any]) -> None:
    assert len(findings(code, {**ADAM, **zero(1, **settings)})) == 1
    assert findings(code, {**ADAM, **BF16_ON_FP32, **zero(1, **settings)}) == []


def test_the_norm_may_be_switched_off_where_nothing_needs_it() -> None:
    off = {"gradient_clipping": 0, **zero(2, compute_grad_norm=False)}
    assert findings("DSA201", off) == []
    assert findings("DSA201", {**off, "gradient_clipping": -1}) == []
    assert len(findings("DSA201", {**off, "gradient_clipping": True})) == 1
    assert len(findings("DSA201", {**off, **zero(2, compute_grad_norm=False, cpu_offload=True)})) == 1
    assert findings("DSA201", {**off, **zero(2, compute_grad_norm=False)}, deepspeed_version=(0, 19, 6)) == []


@pytest.mark.parametrize(
    ("settings", "at", "when"),
    [
        ({"select_interval": 2}, "select_interval", When.START),
        ({"select_strategy": "step"}, "select_interval", When.START),
        ({"select_strategy": "epoch", "select_interval": "auto"}, "select_interval", When.START),
        ({"select_strategy": "step", "select_interval": 1, "update_interval": 2}, "select_interval", When.START),
        ({"offload": True}, "offload", When.START),
    ],
)
def test_zenflow_checks_its_own_settings_at_start(settings: dict[str, Any], at: str, when: When) -> None:
    (found,) = findings("DSA209", {**ADAM, **zero(2, **CPU, zenflow=settings)})
    assert found.path[-1] == at
    assert (found.severity, found.when) == (Severity.ERROR, when)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"select_strategy": "step", "select_interval": 2, "update_interval": 2},
        {"select_strategy": "step", "select_interval": 0, "update_interval": 2},
        {"select_strategy": "step", "select_interval": 1, "update_interval": "auto"},
        # An epoch of the training data may be long enough.
        {"select_strategy": "epoch", "select_interval": 1, "update_interval": 2},
    ],
)
def test_zenflow_starts_with_intervals_that_fit(settings: dict[str, Any]) -> None:
    assert findings("DSA209", {**ADAM, **zero(2, **CPU, zenflow=settings)}) == []


@pytest.mark.parametrize(
    ("config", "when"),
    [
        ({**ADAM, **zero(2, **ZENFLOW)}, When.START),
        ({"optimizer": {"type": "AdamW"}, **zero(2, **CPU, **ZENFLOW)}, When.START),
        ({**ADAM, **zero(0, **CPU, **ZENFLOW)}, When.FIRST_STEP),
        ({**ADAM, **BF16_ON_FP32, **zero(1, **ZENFLOW)}, When.FIRST_STEP),
        ({**ADAM, **zero(2, **CPU, **ZENFLOW, reduce_scatter=False)}, When.FIRST_STEP),
    ],
)
def test_zenflow_without_what_it_stands_on_is_certain_to_fail(config: dict[str, Any], when: When) -> None:
    (found,) = findings("DSA209", config)
    assert (found.severity, found.when) == (Severity.ERROR, when)


@pytest.mark.parametrize(
    "config",
    [{**SGD, **zero(2, **CPU, **ZENFLOW)}, {**SGD, **zero(3, offload_optimizer={"device": "cpu", "ratio": 0.5})}],
)
def test_an_optimizer_that_is_not_adam_is_certain_unless_the_script_passes_its_own(config: dict[str, Any]) -> None:
    (certain,) = findings("DSA209", config, client_optimizer=False)
    assert certain.severity is Severity.ERROR
    (unknown,) = findings("DSA209", config)
    assert unknown.severity is Severity.WARNING
    assert unknown.message.endswith(", unless the script passes its own optimizer")
    assert findings("DSA209", config, client_optimizer=True) == []


def test_a_partial_offload_was_not_checked_before_0_15() -> None:
    config = zero(2, offload_optimizer={"device": "cpu", "ratio": 0.5})
    assert len(findings("DSA202", config)) == 1
    assert findings("DSA202", config, deepspeed_version=(0, 14, 5)) == []


@pytest.mark.parametrize("managed", [False, 0, None, ""])
def test_whatever_counts_as_false_hands_the_boundary_to_the_script(managed: object) -> None:
    config = {"managed_gradient_accumulation": managed, **zero(1, overlap_comm=True)}
    assert len(findings("DSA210", config)) == 1
    assert findings("DSA210", config, deepspeed_version=(0, 19, 3)) == [], "the key came with 0.19.4"
    assert findings("DSA210", {**config, "managed_gradient_accumulation": "false"}) == []


def test_what_the_engine_refuses_is_said_of_launches_with_that_engine_only() -> None:
    config = zero(2, **CPU, **ZENFLOW)
    assert findings("DSA250", config) == []
    assert len(findings("DSA250", config, engine="ds-accum")) == 1
    assert len(findings("DSA250", {**config, "ds_accum": {}})) == 1
    assert findings("DSA250", {**config, "ds_accum": {}}, engine="stock") == []
