"""The rules about precision (DSA3xx) and the first step (DSA4xx) where a value, the launch or the release decides."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ds_accum.config.launch import Launch
from ds_accum.config.schema import Version
from ds_accum.lint import Severity, lint_text
from ds_accum.lint.diagnostic import Diagnostic, When

ADAM = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
LAMB = {"optimizer": {"type": "LAMB", "params": {"lr": 1e-3}}}
SGD = {"optimizer": {"type": "SGD", "params": {"lr": 0.1}}, "zero_allow_untested_optimizer": True}


def zero(stage: int, /, **settings: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": stage, **settings}}


def findings(code: str, config: dict[str, Any], **launch: Any) -> list[Diagnostic]:
    text = json.dumps({"train_batch_size": 8, **config})
    found = lint_text(text, launches=[Launch(world_size=1, framework="raw", **launch)])
    assert [item for item in found if item.code == "DSA000"] == []
    return [item for item in found if item.code == code]


@pytest.mark.parametrize("scale", ["dynamic", True, -1, None, [], "inf"])
def test_a_loss_scale_must_be_a_finite_number_even_while_fp16_is_off(scale: object) -> None:
    assert len(findings("DSA302", {"fp16": {"enabled": False, "loss_scale": scale}})) == 1


@pytest.mark.parametrize(("scale", "refused"), [("dynamic", True), (None, True), (True, False), (-1, False)])
def test_older_releases_took_any_number_for_a_loss_scale(scale: object, refused: bool) -> None:
    fp16 = {"fp16": {"enabled": True, "loss_scale": scale}}
    named = lint_text(
        json.dumps({"train_batch_size": 8, **fp16}), launches=[Launch(world_size=1, deepspeed_version=(0, 18, 7))]
    )
    assert bool([item for item in named if item.path == ("fp16", "loss_scale")]) is refused
    assert findings("DSA302", fp16, deepspeed_version=(0, 17, 0)) == [], "read without a model, and so without a check"


@pytest.mark.parametrize("name", ["loss_scale_window", "min_loss_scale"])
def test_the_limits_of_dynamic_scaling_count_only_with_dynamic_scaling(name: str) -> None:
    assert len(findings("DSA302", {"fp16": {"enabled": True, name: 0}})) == 1
    assert len(findings("DSA302", {"fp16": {"enabled": "1", "loss_scale": "0", name: "0"}})) == 1
    assert findings("DSA302", {"fp16": {"enabled": False, name: 0}}) == []
    assert findings("DSA302", {"fp16": {"enabled": True, "loss_scale": 64, name: 0}}) == []
    assert findings("DSA302", {"fp16": {"enabled": True, name: 0}}, deepspeed_version=(0, 19, 2)) == []


@pytest.mark.parametrize(("version", "stages"), [((0, 19, 8), [0]), ((0, 18, 2), [0, 1, 3]), ((0, 17, 0), [0, 1, 3])])
def test_fp16_master_weights_need_the_stage_that_their_release_wants(version: Version, stages: list[int]) -> None:
    fp16 = {"fp16": {"enabled": True, "fp16_master_weights_and_grads": True}}
    refused = [n for n in range(4) if findings("DSA303", {**fp16, **zero(n)}, deepspeed_version=version)]
    assert refused == stages


def test_master_weights_of_a_model_that_is_not_in_half_precision_count_since_they_are_in_a_model() -> None:
    idle = {"fp16": {"enabled": False, "fp16_master_weights_and_grads": True}}
    assert len(findings("DSA303", idle)) == 1
    assert findings("DSA303", idle, deepspeed_version=(0, 17, 0)) == []


def test_bf16_states_spare_master_weights_the_cpu_unless_they_are_offloaded() -> None:
    bf16 = {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}}
    offloaded = zero(2, offload_optimizer={"device": "cpu"})
    assert findings("DSA304", {**SGD, **bf16, **zero(2)}) == []
    assert len(findings("DSA304", {**SGD, **bf16, **offloaded}, client_optimizer=False)) == 1
    assert findings("DSA304", {**SGD, **bf16, **offloaded}, client_optimizer=False, deepspeed_version=(0, 19, 0)) == []
    assert findings("DSA304", {**ADAM, **bf16, **offloaded}) == []


def test_fp16_and_bf16_master_weights_exclude_each_other() -> None:
    both = {"fp16": {"fp16_master_weights_and_grads": True}, "bf16": {"bf16_master_weights_and_grads": True}}
    (found,) = findings("DSA304", {**ADAM, **both, **zero(2, offload_optimizer={"device": "cpu"})})
    assert found.path == ("bf16", "bf16_master_weights_and_grads")


@pytest.mark.parametrize("word", ["float64", "FP32", "auto", "", 1, True, [], {}])
def test_a_word_that_is_no_dtype_is_refused_wherever_it_is_looked_up(word: object) -> None:
    config = {"data_types": {"grad_accum_dtype": word}}
    assert [item.severity for item in findings("DSA305", {**config, **zero(2)})] == [Severity.ERROR]
    assert [item.severity for item in findings("DSA305", {**config, "bf16": {"enabled": True}})] == [Severity.ERROR]
    assert [item.severity for item in findings("DSA305", config)] == [Severity.WARNING]
    assert findings("DSA305", config, client_optimizer=False) == []


@pytest.mark.parametrize("word", [None, "torch.float16", "half", "float32", "bfloat16"])
def test_every_word_for_a_dtype_is_taken(word: object) -> None:
    assert findings("DSA305", {**ADAM, **zero(2), "data_types": {"grad_accum_dtype": word}}) == []


@pytest.mark.parametrize(
    ("settings", "when"),
    [
        (zero(1), [When.FIRST_STEP]),
        (zero(1, reduce_scatter=False), [When.NEVER]),
        (zero(1, contiguous_gradients=False), [When.NEVER]),
        (zero(2), []),
        (zero(3), [When.NEVER]),
    ],
)
def test_gradients_in_int8_fail_or_come_to_nothing(settings: dict[str, Any], when: list[When]) -> None:
    found = findings("DSA305", {**ADAM, **settings, "data_types": {"grad_accum_dtype": "int8"}})
    assert [item.when for item in found] == when


def test_the_dtype_of_the_parameters_is_read_since_0_19_2() -> None:
    config = {"data_types": {"param_dtype": "bf16"}}
    assert len(findings("DSA306", config)) == 1
    assert findings("DSA306", config, deepspeed_version=(0, 19, 1)) == []
    assert findings("DSA305", {"data_types": {"param_dtype": "x"}}, deepspeed_version=(0, 19, 1)) == []


def test_accumulation_in_another_dtype_needs_zero_once_there_is_an_optimizer() -> None:
    config = {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
    assert [item.severity for item in findings("DSA307", {**ADAM, **config})] == [Severity.ERROR]
    assert [item.severity for item in findings("DSA307", config)] == [Severity.WARNING]
    assert findings("DSA307", config, client_optimizer=False) == []
    assert findings("DSA307", {**ADAM, **config}, deepspeed_version=(0, 18, 4)) == [], "a class of its own did it"


def test_a_bf16_model_does_not_accumulate_in_fp16_even_without_an_optimizer() -> None:
    config = {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp16"}}
    assert [item.severity for item in findings("DSA307", config, client_optimizer=False)] == [Severity.ERROR]


def test_lamb_minds_a_static_scale_unless_the_script_passes_its_own_optimizer() -> None:
    config = {**LAMB, "fp16": {"loss_scale": 128}}
    assert [item.severity for item in findings("DSA308", config, client_optimizer=False)] == [Severity.ERROR]
    assert [item.severity for item in findings("DSA308", config)] == [Severity.WARNING]
    assert findings("DSA308", config, client_optimizer=True) == []
    assert findings("DSA308", config, client_optimizer=False, deepspeed_version=(0, 17, 0)) == [], "fp16 is off"


@pytest.mark.parametrize(("stage", "largest"), [(0, 1023), (1, 63), (2, 63), (3, 63)])
def test_the_first_loss_scale_ends_where_its_stage_can_no_longer_multiply_by_it(stage: int, largest: int) -> None:
    def found(power: int) -> list[Diagnostic]:
        return findings("DSA309", {**ADAM, **zero(stage), "fp16": {"enabled": True, "initial_scale_power": power}})

    assert found(largest) == []
    assert len(found(largest + 1)) == 1
    assert len(found(10**12)) == 1
    assert found(-1000) == []


@pytest.mark.parametrize("clipping", ["auto", "1.0", None, [1], {}])
def test_a_clipping_threshold_that_is_no_number_fails_at_the_first_comparison(clipping: object) -> None:
    (found,) = findings("DSA401", {**ADAM, "gradient_clipping": clipping})
    assert found.when is When.FIRST_STEP
    (found,) = findings("DSA401", {**ADAM, "gradient_clipping": clipping, **zero(2, compute_grad_norm=False)})
    assert found.when is When.START


def test_the_hugging_face_integration_fills_in_a_clipping_threshold() -> None:
    text = json.dumps({"train_batch_size": 8, "gradient_clipping": "auto"})
    found = lint_text(text, launches=[Launch(world_size=1, framework="huggingface")])
    assert [item for item in found if item.code == "DSA401"] == []


@pytest.mark.parametrize("clipping", [True, False, 0, -1, 0.5, 10**400])
def test_any_number_is_a_clipping_threshold(clipping: object) -> None:
    assert findings("DSA401", {**ADAM, "gradient_clipping": clipping}) == []


@pytest.mark.parametrize("steps", [0, False, 0.0, "10", "auto", [], {}])
def test_no_step_can_be_divided_by_zero_or_by_a_string(steps: object) -> None:
    assert len(findings("DSA402", {"steps_per_print": steps})) == 1


@pytest.mark.parametrize("steps", [1, -1, 2.5, True, 10**30])
def test_a_step_can_be_divided_by_any_other_number(steps: object) -> None:
    assert findings("DSA402", {"steps_per_print": steps}) == []


def test_null_prints_nothing_since_0_15_2_and_failed_before() -> None:
    assert findings("DSA402", {"steps_per_print": None}) == []
    assert len(findings("DSA402", {"steps_per_print": None}, deepspeed_version=(0, 15, 1))) == 1


@pytest.mark.parametrize("factor", [0, False, "1.0", None, []])
def test_a_predivide_factor_matters_where_it_is_used(factor: object) -> None:
    config = {**ADAM, "gradient_predivide_factor": factor}
    assert [item.when for item in findings("DSA403", config)] == [When.FIRST_STEP]
    assert findings("DSA403", {**config, **zero(1)}) == []
    assert findings("DSA403", {**config, "prescale_gradients": True}) == []


@pytest.mark.parametrize(("factor", "when"), [(0, When.NEVER), ("1.0", When.FIRST_STEP), (None, When.FIRST_STEP)])
def test_zero_3_divides_by_zero_without_a_word(factor: object, when: When) -> None:
    config = {**ADAM, **zero(3, reduce_scatter=False), "gradient_predivide_factor": factor}
    assert [item.when for item in findings("DSA403", config)] == [when]
