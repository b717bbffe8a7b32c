"""The rules about optimizers and schedulers (DSA5xx) where the launch, the release or another setting decides."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ds_accum.config.launch import Launch
from ds_accum.lint import Severity, lint_text
from ds_accum.lint.diagnostic import Diagnostic, When

CPU = {"offload_optimizer": {"device": "cpu"}}
NOTHING_PASSED = {"client_optimizer": False, "client_scheduler": False}


def optimizer(kind: str, /, **params: Any) -> dict[str, Any]:
    return {"optimizer": {"type": kind, "params": params}}


def scheduler(kind: Any, /, **params: Any) -> dict[str, Any]:
    return {"scheduler": {"type": kind, "params": params}}


def zero(stage: int, /, **settings: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": stage, **settings}}


def findings(code: str, config: dict[str, Any], **launch: Any) -> list[Diagnostic]:
    text = json.dumps({"train_batch_size": 8, **config})
    found = lint_text(text, launches=[Launch(**{"world_size": 1, "framework": "raw", **launch})])
    assert [item for item in found if item.code == "DSA000"] == []
    return [item for item in found if item.code == code]


def test_gpt_neox_builds_optimizers_that_deepspeed_does_not_know() -> None:
    text = "pipe-parallel-size: 1\ntrain_batch_size: 8\noptimizer: {type: %s, params: {lr: 0.1}}\n"
    for name, passed, codes in (("sm3", None, set()), ("sm4", None, {"DSA501"}), ("sm3", False, {"DSA501"})):
        found = lint_text(text % name, filename="neox.yml", launches=[Launch(world_size=1, client_optimizer=passed)])
        assert {item.code for item in found} & {"DSA501"} == codes


# --- what the script passes -------------------------------------------------------------------------------------------

OF_THE_OPTIMIZER = [
    pytest.param("DSA501", optimizer("sgd"), id="DSA501"),
    pytest.param("DSA502", optimizer("SGD", learning_rate=1), id="DSA502"),
    pytest.param("DSA503", optimizer("SGD", lr="0.1"), id="DSA503"),
    pytest.param("DSA504", optimizer("SGD", max_grad_norm=1), id="DSA504"),
    pytest.param("DSA505", {**optimizer("SGD"), **zero(1)}, id="DSA505"),
    pytest.param("DSA506", {**optimizer("Muon"), **zero(3)}, id="DSA506"),
]


@pytest.mark.parametrize(("code", "config"), OF_THE_OPTIMIZER)
def test_the_optimizer_of_the_config_counts_only_if_the_script_passes_none(code: str, config: dict[str, Any]) -> None:
    assert [item.severity for item in findings(code, config, client_optimizer=False)] == [Severity.ERROR]
    assert findings(code, config, client_optimizer=True) == []
    (unknown,) = findings(code, config)
    assert unknown.severity is Severity.WARNING
    assert unknown.message.endswith(", unless the script passes its own optimizer")


OF_THE_SCHEDULER = [
    pytest.param("DSA510", scheduler("cosine"), id="DSA510"),
    pytest.param("DSA511", scheduler("WarmupLR", warmup_ratio=0.1), id="DSA511"),
    pytest.param("DSA512", scheduler("WarmupDecayLR"), id="DSA512"),
    pytest.param("DSA513", scheduler("WarmupLR", warmup_num_steps=0), id="DSA513"),
    pytest.param("DSA514", {**scheduler("StepLR", step_size=1), "bf16": {"enabled": True}}, id="DSA514"),
]


@pytest.mark.parametrize(("code", "config"), OF_THE_SCHEDULER)
@pytest.mark.parametrize(
    ("named", "client_optimizer", "client_scheduler", "clause"),
    [
        (True, False, False, None),
        (True, None, False, None),
        (True, None, None, "unless the script passes its own scheduler"),
        (False, True, False, None),
        (False, None, False, "if the script passes an optimizer"),
        (False, None, None, "if the script passes an optimizer and no scheduler"),
        (True, False, True, ""),
        (False, False, False, ""),
        (False, True, True, ""),
    ],
)
def test_the_scheduler_of_the_config_needs_an_optimizer_and_no_other_scheduler(
    code: str,
    config: dict[str, Any],
    named: bool,
    client_optimizer: bool | None,
    client_scheduler: bool | None,
    clause: str | None,
) -> None:
    config = {**config, **(optimizer("AdamW") if named else {})}
    found = findings(code, config, client_optimizer=client_optimizer, client_scheduler=client_scheduler)
    if clause == "":
        assert found == []
        return
    (item,) = found
    assert item.severity is (Severity.ERROR if clause is None else Severity.WARNING)
    assert clause is None or item.message.endswith(f", {clause}")


def test_the_scheduler_of_the_config_came_first_before_0_14_5() -> None:
    config = {**optimizer("AdamW"), **scheduler("cosine")}
    for version, count in (((0, 14, 4), 1), ((0, 14, 5), 0)):
        assert len(findings("DSA510", config, client_scheduler=True, deepspeed_version=version)) == count


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("sgd", "SGD"),
        ("FusedAdam", "Adam"),
        ("DeepSpeedCPUAdam", "Adam"),
        ("adamw_torch_fused", "AdamW"),
        ("paged_adamw_8bit", "AdamW"),
        ("AdamW8bit", "AdamW"),
        ("AdamWW", "AdamW"),
        ("adafactor", "Adafactor"),
        ("fused_lamb", "Lamb"),
    ],
)
def test_an_optimizer_by_another_tools_name_is_translated(name: str, meant: str) -> None:
    (item,) = findings("DSA501", optimizer(name), client_optimizer=False)
    assert item.help == f'did you mean "{meant}"?'


@pytest.mark.parametrize(
    ("name", "meant"),
    [("cosine", "WarmupCosineLR"), ("linear", "WarmupDecayLR"), ("warmuplr", "WarmupLR"), ("step_lr", "StepLR")],
)
def test_a_scheduler_by_another_name_is_translated(name: str, meant: str) -> None:
    (item,) = findings("DSA510", {**optimizer("AdamW"), **scheduler(name)}, **NOTHING_PASSED)
    assert item.help == f'did you mean "{meant}"?'


@pytest.mark.parametrize("name", [5, ["WarmupLR"], {}, True])
def test_a_scheduler_is_named_by_a_string(name: object) -> None:
    (item,) = findings("DSA510", {**optimizer("AdamW"), **scheduler(name)}, **NOTHING_PASSED)
    assert item.message.startswith("scheduler.type must be the name of a scheduler, but is the ")


@pytest.mark.parametrize("name", ["get_torch_optimizer", "is_tensor", "__doc__"])
def test_a_scheduler_by_a_name_that_may_work_by_accident_is_a_warning(name: str) -> None:
    (item,) = findings("DSA510", {**optimizer("AdamW"), **scheduler(name)}, **NOTHING_PASSED)
    assert item.severity is Severity.WARNING
    assert item.message.startswith(f'"{name}" is no scheduler, though')


@pytest.mark.parametrize("name", ["swap_in_optimizer_params_and_state", "__name__"])
def test_an_optimizer_by_a_name_that_may_work_by_accident_is_a_warning(name: str) -> None:
    (item,) = findings("DSA501", optimizer(name), **NOTHING_PASSED)
    assert item.severity is Severity.WARNING


def test_the_base_of_torchs_optimizers_is_no_scheduler_with_certainty() -> None:
    (item,) = findings("DSA510", {**optimizer("AdamW"), **scheduler("Optimizer")}, **NOTHING_PASSED)
    assert item.severity is Severity.ERROR


def test_without_an_optimizer_nobody_looks_at_the_name_of_the_scheduler() -> None:
    assert findings("DSA510", scheduler("WarmupCosine"), client_optimizer=False) == []


def test_muon_and_the_one_bit_optimizers_are_known_to_some_releases_only() -> None:
    for name, version, known in (
        ("muon", (0, 17, 5), False),
        ("muon", (0, 17, 6), True),
        ("ZeroOneAdam", (0, 19, 6), True),
        ("ZeroOneAdam", (0, 19, 7), False),
    ):
        found = findings("DSA501", optimizer(name), client_optimizer=False, deepspeed_version=version)
        assert (found == []) is known


# --- parameters of the optimizer --------------------------------------------------------------------------------------


def test_a_key_of_torchs_adam_needs_torch_adam() -> None:
    (item,) = findings("DSA502", optimizer("AdamW", fused=True), client_optimizer=False)
    assert "torch_adam" in (item.help or "")
    assert findings("DSA502", optimizer("AdamW", fused=True, torch_adam=True), client_optimizer=False) == []
    (other,) = findings("DSA502", optimizer("AdamW", bias_correction=True, torch_adam=True), client_optimizer=False)
    assert "with torch_adam, takes no parameter" in other.message


def test_the_base_of_all_optimizers_lacks_its_defaults() -> None:
    (item,) = findings("DSA502", optimizer("Optimizer"), client_optimizer=False)
    assert item.message == 'torch.optim.Optimizer needs the parameter "defaults"'


def test_muon_ignores_what_it_does_not_know() -> None:
    assert findings("DSA502", optimizer("Muon", nesterov=True, anything=1), client_optimizer=False) == []


@pytest.mark.parametrize(
    ("config", "when"),
    [
        (optimizer("AdamW", eps="1e-8"), When.FIRST_STEP),
        ({**optimizer("AdamW", eps="1e-8"), **zero(2)}, When.FIRST_STEP),
        # Without ZeRO half precision takes a step on zeros while it starts.
        ({**optimizer("AdamW", eps="1e-8"), "bf16": {"enabled": True}}, When.START),
        ({**optimizer("AdamW", eps="1e-8"), "bf16": {"enabled": True}, **zero(1)}, When.FIRST_STEP),
        ({**optimizer("AdamW", eps="1e-8"), **zero(2, **CPU)}, When.START),
        (optimizer("AdamW", eps="1e-8", torch_adam=True), When.START),
        (optimizer("AdamW", amsgrad=True), When.START),
        (optimizer("Muon", momentum="0.9"), When.FIRST_STEP),
        (optimizer("Muon", ns_method="fast"), When.START),
    ],
)
def test_a_wrong_value_is_found_when_its_class_looks_at_it(config: dict[str, Any], when: When) -> None:
    (item,) = findings("DSA503", config, **NOTHING_PASSED)
    assert item.when is when and item.severity is Severity.ERROR


def test_a_scheduler_may_replace_a_wrong_learning_rate_before_the_first_step() -> None:
    config = optimizer("AdamW", lr="1e-3")
    assert [item.severity for item in findings("DSA503", config, **NOTHING_PASSED)] == [Severity.ERROR]
    (unknown,) = findings("DSA503", config, client_optimizer=False)
    assert unknown.message.endswith(", unless a scheduler sets it before the first step")
    (both,) = findings("DSA503", config)
    assert both.message.endswith(
        ", unless the script passes its own optimizer, and unless a scheduler sets it before the first step"
    )
    assert findings("DSA503", config, client_optimizer=False, client_scheduler=True) == []
    replaced = {**config, **scheduler("WarmupLR", warmup_max_lr=0.1)}
    assert findings("DSA503", replaced, **NOTHING_PASSED) == []
    scaled = {**config, **scheduler("WarmupCosineLR", total_num_steps=10)}
    assert [item.when for item in findings("DSA503", scaled, **NOTHING_PASSED)] == [When.FIRST_STEP]


def test_the_mode_of_adam_must_be_a_boolean_only_where_it_reaches_the_kernel() -> None:
    for kind, others, count in (("Adam", zero(2, **CPU), 1), ("AdamW", zero(2, **CPU), 0), ("Adam", {}, 0)):
        config = {**optimizer(kind, adam_w_mode="false"), **others}
        assert len(findings("DSA503", config, client_optimizer=False)) == count


@pytest.mark.parametrize(
    ("params", "count"),
    [
        ({"nesterov": True}, 1),
        ({"nesterov": True, "momentum": 0.9}, 0),
        ({"nesterov": True, "momentum": 0.9, "dampening": 0.1}, 1),
        ({"nesterov": False}, 0),
    ],
)
def test_nesterov_needs_momentum_and_no_dampening(params: dict[str, Any], count: int) -> None:
    assert len(findings("DSA503", optimizer("SGD", **params), client_optimizer=False)) == count


@pytest.mark.parametrize("value", ["1.0", None, [], {}])
def test_a_max_grad_norm_that_is_no_number_fails_while_the_config_loads(value: object) -> None:
    assert findings("DSA504", optimizer("AdamW", max_grad_norm=value), client_optimizer=False) == []


@pytest.mark.parametrize(("allowed", "count"), [(False, 1), (None, 1), (0, 1), (True, 0), ("false", 0), (1, 0)])
def test_any_true_value_allows_an_untested_optimizer(allowed: object, count: int) -> None:
    config = {**optimizer("SGD"), **zero(1), "zero_allow_untested_optimizer": allowed}
    assert len(findings("DSA505", config, client_optimizer=False)) == count


def test_muon_ran_on_no_zero_3_before_0_18_9() -> None:
    config = {**optimizer("Muon"), **zero(3, reduce_scatter=False)}
    assert findings("DSA506", config, client_optimizer=False) == []
    (item,) = findings("DSA506", config, client_optimizer=False, deepspeed_version=(0, 18, 8))
    assert item.path == ("zero_optimization", "stage")


# --- parameters of the scheduler --------------------------------------------------------------------------------------


def test_what_hugging_face_fills_in_is_not_missing() -> None:
    for value, count in (("auto", 0), (None, 1)):
        params = {"total_num_steps": value} if value else {}
        config = {**optimizer("AdamW"), **scheduler("WarmupDecayLR", **params)}
        assert len(findings("DSA512", config, framework="huggingface", client_scheduler=False)) == count


def test_the_length_of_torchs_one_cycle_is_one_number_or_two() -> None:
    for params, count in (
        ({"max_lr": 0.1}, 1),
        ({"max_lr": 0.1, "epochs": 3}, 1),
        ({"max_lr": 0.1, "epochs": 3, "steps_per_epoch": 10}, 0),
        ({"max_lr": 0.1, "total_steps": 30}, 0),
    ):
        config = {**optimizer("SGD"), **scheduler("OneCycleLR", **params)}
        assert len(findings("DSA512", config, **NOTHING_PASSED)) == count


def test_torchs_schedulers_could_be_verbose_before_2_7() -> None:
    config = {**optimizer("SGD"), **scheduler("StepLR", step_size=1, verbose=True)}
    (item,) = findings("DSA511", config, **NOTHING_PASSED)
    assert item.severity is Severity.WARNING and item.message.endswith(", unless torch is older than 2.7")


def test_a_key_of_another_scheduler_is_traced_to_it() -> None:
    config = {**optimizer("AdamW"), **scheduler("WarmupLR", total_num_steps=10)}
    (item,) = findings("DSA511", config, **NOTHING_PASSED)
    assert item.help == "remove it; it belongs to WarmupCosineLR, WarmupDecayLR"


@pytest.mark.parametrize(("steps", "since"), [(0, (0, 19, 3)), (10.5, (0, 19, 3)), ("auto", (0, 14, 0))])
def test_the_steps_of_a_warm_up_are_checked_since_0_19_3(steps: object, since: tuple[int, ...]) -> None:
    config = {**optimizer("AdamW"), **scheduler("WarmupLR", warmup_num_steps=steps)}
    for version in ((0, 14, 0), (0, 19, 2), (0, 19, 3), (0, 19, 8)):
        found = findings("DSA513", config, deepspeed_version=version, **NOTHING_PASSED)
        assert bool(found) is (version >= since)


@pytest.mark.parametrize(
    ("params", "when"),
    [
        ({"lr_range_test_step_size": 0}, When.START),
        ({"lr_range_test_min_lr": "1e-3"}, When.FIRST_STEP),
        ({"lr_range_test_min_lr": ["1e-3", 1]}, None),  # one for each group of the script's
    ],
)
def test_a_range_test_fails_when_it_computes(params: dict[str, Any], when: When | None) -> None:
    config = {**optimizer("AdamW"), **scheduler("LRRangeTest", **params)}
    assert [item.when for item in findings("DSA513", config, **NOTHING_PASSED)] == [when] * (when is not None)


def test_torchs_schedulers_take_what_deepspeed_does_not_wrap() -> None:
    config = {**optimizer("AdamW"), **scheduler("StepLR", step_size=1)}
    assert findings("DSA514", config, **NOTHING_PASSED) == []
    for others in (zero(1), zero(3), {"fp16": {"enabled": True}}, {"bfloat16": {"enabled": True}}):
        assert len(findings("DSA514", {**config, **others}, **NOTHING_PASSED)) == 1
    assert findings("DSA514", {**optimizer("AdamW"), **scheduler("WarmupLR"), **zero(1)}, **NOTHING_PASSED) == []


# --- offload ----------------------------------------------------------------------------------------------------------


def test_offload_with_the_scripts_own_optimizer_depends_on_which_it_is() -> None:
    for config in (zero(2, **CPU), zero(0, **CPU), {**zero(2, **CPU), "zero_force_ds_cpu_optimizer": "false"}):
        (item,) = findings("DSA520", config, client_optimizer=True)
        assert item.severity is Severity.WARNING
        assert item.message.endswith(", unless it is DeepSpeedCPUAdam or DeepSpeedCPULion")
    (deprecated,) = findings("DSA520", zero(2, cpu_offload=True), client_optimizer=True)
    assert deprecated.path == ("zero_optimization", "cpu_offload")


def test_offload_asks_nothing_where_the_script_passes_none_or_a_framework_takes_care() -> None:
    for launch in ({"client_optimizer": None}, {"client_optimizer": False}):
        assert findings("DSA520", zero(2, **CPU), **launch) == []
    assert findings("DSA520", zero(2, **CPU), client_optimizer=True, framework="accelerate") == []
    allowed = {**zero(2, **CPU), "zero_force_ds_cpu_optimizer": False}
    assert findings("DSA520", allowed, client_optimizer=True) == []


# --- nothing fails on nonsense ----------------------------------------------------------------------------------------

ODD = (None, True, 0, -1, 10**400, 1e308, "", "auto", "x", [], [[]], {}, {"": 0}, {"lr": []})


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("key", ["type", "params"])
@pytest.mark.parametrize("block", ["optimizer", "scheduler"])
def test_a_block_of_nonsense_breaks_no_rule(block: str, key: str, odd: object) -> None:
    whole = {"type": {"optimizer": "AdamW", "scheduler": "WarmupLR"}[block], "params": {}}
    for config in ({block: {**whole, key: odd}}, {block: odd}, {block: {**whole, "params": {"lr": odd, "betas": odd}}}):
        assert findings("DSA000", {**optimizer("SGD"), **config}, **NOTHING_PASSED) == []
