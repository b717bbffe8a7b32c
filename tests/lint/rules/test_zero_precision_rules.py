"""The rules about what DeepSpeed takes without a word (DSA22x, DSA31x, DSA42x, DSA9xx): where each of them speaks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ds_accum.config.launch import Launch
from ds_accum.config.schema import Version
from ds_accum.lint import Severity, lint_text
from ds_accum.lint.diagnostic import Diagnostic
from ds_accum.lint.rules.inert_setting import INERT
from ds_accum.lint.rules.wrong_gradients_in_this_release import RELEASES

ADAM = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
BF16 = {"bf16": {"enabled": True}}
FP16 = {"fp16": {"enabled": True}}


def zero(stage: int, /, **settings: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": stage, **settings}}


def findings(code: str, config: dict[str, Any], **launch: Any) -> list[Diagnostic]:
    text = json.dumps({"train_micro_batch_size_per_gpu": 2, **config})
    found = lint_text(text, launches=[Launch(**{"framework": "raw", **launch})])
    assert [item for item in found if item.code == "DSA000"] == []
    return [item for item in found if item.code == code]


def test_fp16_without_zero_is_wrong_for_every_optimizer_that_there_is() -> None:
    assert [item.severity for item in findings("DSA310", {**ADAM, **FP16})] == [Severity.ERROR]
    assert [item.severity for item in findings("DSA310", FP16, client_optimizer=True)] == [Severity.ERROR]
    assert [item.severity for item in findings("DSA310", FP16)] == [Severity.WARNING]
    assert findings("DSA310", FP16, client_optimizer=False) == []


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_fp16_with_zero_is_right(stage: int) -> None:
    assert findings("DSA310", {**ADAM, **FP16, **zero(stage)}) == []


def test_a_loss_scale_of_one_divides_by_nothing() -> None:
    def severities(**fp16: Any) -> list[Severity]:
        return [item.severity for item in findings("DSA310", {**ADAM, "fp16": {"enabled": True, **fp16}})]

    assert severities(loss_scale=1) == severities(loss_scale=1.0) == []
    assert severities(loss_scale=2) == severities(initial_scale_power=1) == [Severity.ERROR]
    assert severities(initial_scale_power=0) == [Severity.WARNING], "right until the scale first grows"


def test_fp16_without_zero_was_right_before_0_18_3_and_is_on_our_engine() -> None:
    assert findings("DSA310", {**ADAM, **FP16}, deepspeed_version=(0, 18, 2)) == []
    assert len(findings("DSA310", {**ADAM, **FP16}, deepspeed_version=(0, 18, 3))) == 1
    assert findings("DSA310", {**ADAM, **FP16}, engine="ds-accum") == []


@pytest.mark.parametrize(("steps", "severity"), [(16, Severity.INFO), (256, Severity.INFO), (257, Severity.WARNING)])
def test_accumulation_in_bf16_is_worth_a_warning_once_the_sum_stands_still(steps: int, severity: Severity) -> None:
    config = {**ADAM, **BF16, "gradient_accumulation_steps": steps, **zero(2)}
    assert [item.severity for item in findings("DSA311", config)] == [severity]


def test_accumulation_in_bf16_takes_accumulation() -> None:
    assert findings("DSA311", {**ADAM, **BF16, **zero(2)}) == []
    assert findings("DSA311", {**ADAM, **BF16, **zero(2), "gradient_accumulation_steps": 15}) == []
    auto = {**ADAM, **BF16, "gradient_accumulation_steps": "auto"}
    assert findings("DSA311", auto, framework="huggingface") == []
    derived = {**ADAM, **BF16, "train_batch_size": 128}
    assert findings("DSA311", derived) == [], "unknown without a world size"
    assert len(findings("DSA311", derived, world_size=4)) == 1


@pytest.mark.parametrize(("ranks", "severities"), [(None, [Severity.WARNING]), (4, [Severity.ERROR]), (8, [])])
def test_a_predivide_factor_is_wrong_for_its_own_number_of_ranks(ranks: int | None, severities: list[Severity]) -> None:
    config = {**ADAM, "gradient_predivide_factor": 4, **zero(3, reduce_scatter=False)}
    assert [item.severity for item in findings("DSA220", config, world_size=ranks)] == severities
    assert findings("DSA220", {**config, **zero(2, reduce_scatter=False)}, world_size=ranks) == []


@pytest.mark.parametrize("factor", [1, 1.0, 2.5, 0.5, True])
def test_a_factor_that_no_number_of_ranks_equals_is_right(factor: float) -> None:
    config = {**ADAM, "gradient_predivide_factor": factor, **zero(3, reduce_scatter=False)}
    assert findings("DSA220", config) == []


def test_a_single_rank_divides_nothing() -> None:
    assert findings("DSA221", {**ADAM, "gradient_predivide_factor": 8, **zero(1)}, world_size=1) == []
    assert len(findings("DSA221", {**ADAM, "gradient_predivide_factor": 8, **zero(1)})) == 1


@pytest.mark.parametrize(("model", "dtype"), [("bf16", "bf16"), ("fp16", "fp16"), ("fp16", "bf16"), ("fp32", "fp32")])
def test_communication_in_the_dtype_of_the_model_is_right(model: str, dtype: str) -> None:
    enabled = {} if model == "fp32" else {model: {"enabled": True}}
    assert findings("DSA315", {**ADAM, **enabled, "communication_data_type": dtype, **zero(2)}) == []


def test_every_inert_key_exists() -> None:
    from ds_accum.config.schema import newest_version, schema_for

    schema = schema_for(newest_version())
    assert {(row.block, key) for row in INERT for key in row.keys if key not in schema.block(row.block).keys} == set()


def test_a_default_asks_for_nothing() -> None:
    defaults = {"reduce_bucket_size": 500000000, "overlap_comm": False, "contiguous_gradients": True}
    assert findings("DSA222", {**ADAM, **zero(0, **defaults)}) == []
    assert findings("DSA222", {**ADAM, **zero(2, stage3_gather_16bit_weights_on_model_save=True)}) == []


def test_inert_keys_are_reported_in_one_line_a_file() -> None:
    copied = {"sub_group_size": 1, "stage3_max_live_parameters": 1, "stage3_max_reuse_distance": 1}
    (found,) = findings("DSA222", {**ADAM, **zero(2, **copied)})
    assert found.severity is Severity.INFO
    assert all(key in found.message for key in copied)


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.reference)
def test_a_wrong_release_was_mended(release: Any) -> None:
    assert release.since is None or release.since < release.mended


@pytest.mark.parametrize(
    ("version", "wrong"), [((0, 17, 5), 0), ((0, 17, 6), 1), ((0, 18, 2), 1), ((0, 18, 3), 0), ((0, 19, 8), 0)]
)
def test_a_release_is_named_from_the_one_that_broke_it_up_to_the_one_that_mended_it(
    version: Version, wrong: int
) -> None:
    config = {**ADAM, "gradient_accumulation_steps": 4, **zero(2)}
    assert len(findings("DSA901", config, deepspeed_version=version)) == wrong


def test_clipping_decides_how_wrong_autocasting_to_fp16_is() -> None:
    config = {**ADAM, "torch_autocast": {"enabled": True, "dtype": "float16"}, **zero(2)}
    assert [item.severity for item in findings("DSA902", config)] == [Severity.ERROR], "clipped at 1 by default"
    assert [item.severity for item in findings("DSA902", {**config, "gradient_clipping": 0})] == [Severity.WARNING]
    assert findings("DSA902", {**config, **zero(0)}) == []


def test_only_a_short_window_halves_updates_often() -> None:
    for window, count in ((100, 1), (101, 0), (1000, 0)):
        config = {**ADAM, "fp16": {"enabled": True, "loss_scale_window": window}, **zero(1)}
        assert len(findings("DSA905", config)) == count
