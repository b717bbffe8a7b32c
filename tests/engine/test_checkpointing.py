"""A run that is cut in two by a checkpoint is the same run, to the last bit; checkpoints of stock DeepSpeed are taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from launch import Answer, Job, launch

STAGES = (0, 1, 2, 3)
_BF16 = {"dtype": "bf16"}
_OFFLOADED = {"zero": {"offload_optimizer": {"device": "cpu"}}}
_AT_THE_BOUNDARY = {"block": {"reduction": "boundary"}}
_SETTINGS: dict[str, dict[str, Any]] = {
    **{f"ZeRO-{stage}": {"stage": stage} for stage in STAGES},
    **{f"ZeRO-{stage} bf16": {"stage": stage, **_BF16} for stage in STAGES},
    "BF16_Optimizer": {"stage": 1, **_BF16, "data_types": {"grad_accum_dtype": "fp32"}},
    **{f"ZeRO-{stage} offloaded": {"stage": stage, **_OFFLOADED} for stage in (1, 2, 3)},
    **{f"ZeRO-{stage} reduced at the boundary": {"stage": stage, **_AT_THE_BOUNDARY} for stage in (2, 3)},
}


@pytest.fixture(scope="module")
def answers() -> Mapping[str, Answer]:
    jobs = [
        Job(name=f"resume, {name}", function="resuming:resume", arguments={"settings": settings})
        for name, settings in _SETTINGS.items()
    ]
    jobs += [
        Job(name=f"failure, {name}", function="resuming:after_a_failure", arguments={"settings": settings})
        for name, settings in _SETTINGS.items()
    ]
    jobs += [
        Job(name=f"missing, {name}", function="resuming:missing", arguments={"settings": settings})
        for name, settings in _SETTINGS.items()
    ]
    jobs += [
        Job(name=f"from_stock, ZeRO-{stage}", function="resuming:from_stock", arguments={"settings": {"stage": stage}})
        for stage in STAGES
    ]
    return launch(jobs)


@pytest.mark.parametrize("name", _SETTINGS)
def test_a_resumed_run_is_the_same_to_the_last_bit(name: str, answers: Mapping[str, Answer]) -> None:
    answer = answers[f"resume, {name}"]
    answer.value()
    for found in answer.values:
        assert found["same"] and found["steps"] == 4


@pytest.mark.parametrize("stage", STAGES)
def test_the_constant_of_the_next_window_goes_along(stage: int, answers: Mapping[str, Answer]) -> None:
    answer = answers[f"resume, ZeRO-{stage}"]
    answer.value()
    for found in answer.values:
        # Three tokens in each of two micro-batches of each rank, over a divisor of two ranks.
        assert found["constants"] == [6.0, 6.0]


@pytest.mark.parametrize("stage", STAGES)
def test_the_state_of_the_client_comes_back_without_ours(stage: int, answers: Mapping[str, Answer]) -> None:
    found = answers[f"resume, ZeRO-{stage}"].value()
    assert found["epoch"] == 7 and not found["ours in client_state"]


@pytest.mark.parametrize("name", _SETTINGS)
def test_where_there_is_no_checkpoint_everything_stays_as_it_was(name: str, answers: Mapping[str, Answer]) -> None:
    answer = answers[f"missing, {name}"]
    answer.value()
    for found in answer.values:
        assert found == {"found": [[None, None]] * 3, "constant": True, "same": True, "steps": 4}


@pytest.mark.parametrize("stage", STAGES)
def test_checkpoints_go_from_stock_deepspeed_to_ours_and_back(stage: int, answers: Mapping[str, Answer]) -> None:
    answer = answers[f"from_stock, ZeRO-{stage}"]
    answer.value()
    for found in answer.values:
        assert found == {"loaded": True, "constant": None, "goes on": True, "back": True}


@pytest.mark.parametrize("name", _SETTINGS)
def test_after_a_backward_that_failed_no_step_is_taken(name: str, answers: Mapping[str, Answer]) -> None:
    answer = answers[f"failure, {name}"]
    answer.value()
    for found in answer.values:
        failed, refused = found["raised"]
        assert failed == "ArithmeticError: this backward fails"
        assert refused.startswith("AccumulationError: a backward of this window ended with ArithmeticError")
        assert "start again from the last checkpoint" in refused


@pytest.mark.parametrize("name", _SETTINGS)
def test_after_a_backward_that_failed_a_checkpoint_goes_on_or_asks_for_a_new_process(
    name: str, answers: Mapping[str, Answer]
) -> None:
    answer = answers[f"failure, {name}"]
    answer.value()
    stage = _SETTINGS[name]["stage"]
    for found in answer.values:
        if stage < 2:
            assert found["same"] and found["steps"] == 3
        else:
            assert found["loading"].startswith(
                f"AccumulationError: a backward ended with ArithmeticError, and ZeRO-{stage}"
            )
            assert "load the checkpoint in a new process" in found["loading"]
