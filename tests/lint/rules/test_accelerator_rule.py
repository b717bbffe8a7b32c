"""DSA803 where the accelerator, the release, the script or another setting decides."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ds_accum.config.accelerators import ACCELERATOR_LIMITS
from ds_accum.config.launch import ACCELERATORS, Launch
from ds_accum.lint import Severity, lint_text
from ds_accum.lint.diagnostic import Diagnostic, When
from ds_accum.lint.rules import RULES

GDS = {"aio": {"use_gds": True}}
CPU = {"offload_optimizer": {"device": "cpu"}}


def optimizer(name: object) -> dict[str, Any]:
    return {"optimizer": {"type": name, "params": {"lr": 1e-4}}}


ADAM = optimizer("AdamW")


def zero(stage: object, /, **settings: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": stage, **settings}}


def findings(config: dict[str, Any], **launch: Any) -> list[Diagnostic]:
    text = json.dumps({"train_batch_size": 8, **config})
    default = {"world_size": 1, "framework": "raw", "accelerator": "cpu", "client_optimizer": False}
    found = lint_text(text, launches=[Launch(**{**default, **launch})])
    assert [item for item in found if item.code == "DSA000"] == []
    return [item for item in found if item.code == "DSA803"]


def test_every_limit_of_the_table_has_a_bad_example() -> None:
    reported = {report.at for example in RULES.by_code["DSA803"].bad for report in example.reports}
    assert reported == {".".join(limit.settings[0].path) for limit in ACCELERATOR_LIMITS}


@pytest.mark.parametrize("accelerator", ACCELERATORS)
def test_what_only_cuda_has_is_refused_everywhere_else(accelerator: str) -> None:
    found = findings(GDS, accelerator=accelerator)
    assert [item.when for item in found] == ([] if accelerator == "cuda" else [When.LOAD])
    super_offload = {**ADAM, **zero(3, offload_optimizer={"device": "cpu", "super_offload": True})}
    assert len(findings(super_offload, accelerator=accelerator)) == (accelerator != "cuda")
    assert len(findings(optimizer("Lamb"), accelerator=accelerator)) == (accelerator == "cpu")


@pytest.mark.parametrize(("value", "count"), [(True, 1), (1, 1), ("false", 1), (False, 0), (None, 0), (0, 0)])
def test_a_switch_that_is_not_validated_is_on_for_all_that_is_true(value: object, count: int) -> None:
    assert len(findings({"aio": {"use_gds": value}})) == count


def test_a_release_that_does_not_know_the_setting_refuses_nothing() -> None:
    assert findings(GDS, deepspeed_version=(0, 14, 5)) == []
    assert len(findings(GDS, deepspeed_version=(0, 15, 0))) == 1
    super_offload = {**ADAM, **zero(3, offload_optimizer={"device": "cpu", "super_offload": True})}
    assert findings(super_offload, deepspeed_version=(0, 18, 8)) == []
    assert len(findings(super_offload, deepspeed_version=(0, 18, 9))) == 1
    writer = {"checkpoint": {"writer": {"type": "fast"}}}
    assert findings(writer, deepspeed_version=(0, 17, 0)) == []


@pytest.mark.parametrize("name", ["Lamb", "LAMB", "lamb", "Lion"])
def test_an_optimizer_is_refused_where_deepspeed_builds_it(name: str) -> None:
    (item,) = findings(optimizer(name))
    assert (item.severity, item.when) == (Severity.ERROR, When.START)
    (item,) = findings(optimizer(name), client_optimizer=None)
    assert item.severity is Severity.WARNING and item.message.endswith(", unless the script passes its own optimizer")
    assert findings(optimizer(name), client_optimizer=True) == []


@pytest.mark.parametrize("offload", [CPU, {"cpu_offload": True}])
@pytest.mark.parametrize("stage", [0, 2])
def test_lion_runs_on_a_cpu_where_its_states_are_offloaded(stage: int, offload: dict[str, Any]) -> None:
    assert findings({**optimizer("Lion"), **zero(stage, **offload)}) == []
    assert len(findings({**optimizer("Lion"), **zero(stage)})) == 1


def test_quantized_weights_are_those_of_stage_3() -> None:
    for stage, count in ((3, 1), ("3", 1), (2, 0), (0, 0)):
        assert len(findings({**ADAM, **zero(stage, zero_quantized_weights=True)})) == count
    assert len(findings(zero(3, zero_quantized_weights=True))) == 1, "without an optimizer as well"


def test_super_offload_is_for_an_optimizer_whoever_brings_it() -> None:
    config = zero(3, offload_optimizer={"super_offload": True})
    assert findings(config) == []
    assert [item.severity for item in findings(config, client_optimizer=True)] == [Severity.ERROR]
    (item,) = findings(config, client_optimizer=None)
    assert item.severity is Severity.WARNING and item.message.endswith(", if the script passes an optimizer")


def test_zenflow_fails_at_its_first_step_at_stage_3_unless_it_warms_up() -> None:
    zenflow = {"update_interval": 4, "select_strategy": "step", "select_interval": 8}
    (item,) = findings({**ADAM, **zero(3, **CPU, zenflow=zenflow)})
    assert (item.severity, item.when) == (Severity.WARNING, When.FIRST_STEP)
    assert findings({**ADAM, **zero(2, **CPU, zenflow=zenflow)}) == []
    assert findings({**ADAM, **zero(3, **CPU, zenflow={**zenflow, "full_warm_up_rounds": 5})}) == []
    assert findings({**ADAM, **zero(3, **CPU, zenflow=None)}) == []


@pytest.mark.parametrize(
    ("writer", "count"),
    [({}, 1), ({"type": "Fast"}, 1), ({"type": "python"}, 0), ({"type": None}, 0), (None, 0)],
)
def test_the_fast_writer_is_the_default_of_a_writer_that_is_there(writer: object, count: int) -> None:
    assert len(findings({**ADAM, **zero(3), "checkpoint": {"writer": writer}})) == count
    assert findings({**ADAM, **zero(3), "checkpoint": {}}) == []


def test_fp16_depends_on_the_cpu() -> None:
    (item,) = findings({**ADAM, "fp16": {"enabled": True}})
    assert item.severity is Severity.WARNING and item.message.endswith("unless oneDNN has fp16 kernels for this CPU")
    assert findings({**ADAM, "fp16": {"enabled": False}}) == []
    assert findings({**ADAM, "bf16": {"enabled": True}}) == []


@pytest.mark.parametrize("odd", [None, 5, "x", [], True])
def test_odd_values_break_nothing(odd: object) -> None:
    for config in (
        {"aio": odd},
        {"optimizer": odd},
        {"checkpoint": odd},
        {"checkpoint": {"writer": odd}},
        {"fp16": odd},
        {"zero_optimization": odd},
        optimizer(odd),
        zero(odd),
        zero(3, zenflow=odd),
        zero(3, offload_optimizer=odd),
        zero(3, zero_quantized_weights=odd if odd != 5 else [1]),
        {**optimizer("Lion"), **zero(1, offload_optimizer={"device": odd})},
    ):
        findings(config)
