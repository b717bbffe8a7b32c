"""Windows that an error interrupts, or that end otherwise than by counting: whole, exact, and followed by whole ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from launch import Answer, Job, launch

STAGES = (0, 1, 2, 3)
_MORE = {"both": [[5.0], [7.0, 9.0]], "rank 1 alone": [[], [8.0]]}
_FEW = {"one": [1, 0], "none": [0, 0]}
_NOTHING: dict[str, dict[str, Any]] = {
    "ZeRO-0": {"settings": {"stage": 0}},
    "ZeRO-0 clipped": {"settings": {"stage": 0, "clipping": 100.0}},
    "ZeRO-0 bf16": {"settings": {"stage": 0, "dtype": "bf16"}},
}
_BOUNDARY = {"block": {"reduction": "boundary"}}
_NOTHING_IN_ZERO: dict[str, dict[str, Any]] = {
    "ZeRO-1": {"settings": {"stage": 1}},
    "BF16_Optimizer": {"settings": {"stage": 1, "dtype": "bf16", "data_types": {"grad_accum_dtype": "fp32"}}},
    "ZeRO-2, reduced at the boundary": {"settings": {"stage": 2}, **_BOUNDARY},
}
_WARM_UPS = ("evaluation", "no gradients", "training", "its own forward")

Answers = Mapping[str, Answer]


@pytest.fixture(scope="module")
def answers() -> Answers:
    jobs = []

    def add(name: str, function: str, **arguments: Any) -> None:
        jobs.append(Job(name=name, function=f"windows:{function}", arguments=arguments))

    for stage in STAGES:
        settings = {"stage": stage}
        add(f"error after, ZeRO-{stage}", "error_after_the_step", settings=settings)
        add(f"flush after, ZeRO-{stage}", "flush_after_the_boundary", settings=settings)
        for name, tokens in _FEW.items():
            add(f"declared {name}, ZeRO-{stage}", "declared", settings=settings, tokens=tokens)
        for how in _WARM_UPS:
            add(f"warmed up by {how}, ZeRO-{stage}", "warmed_up", settings=settings, how=how)
    for stage in (0, 1):
        for name, more in _MORE.items():
            add(f"error inside, {name}, ZeRO-{stage}", "error_inside_a_window", settings={"stage": stage}, more=more)
        for log in (False, True):
            block = {"counting": {"shift": False}, **({"log": "steps.jsonl"} if log else {})}
            settings = {"stage": stage, "clipping": 100.0, "block": block}
            add(f"report, {log}, ZeRO-{stage}", "report_that_nobody_asks_for", settings=settings)
    add("loss reduced in place", "loss_reduced_in_place", settings={"stage": 0})
    add("loss left alone", "loss_left_alone", settings={"stage": 0})
    add("error at the step", "error_at_the_step", settings={"stage": 0})
    for name, arguments in (_NOTHING | _NOTHING_IN_ZERO).items():
        add(f"nothing, {name}", "nothing_on_rank_1", **arguments)
    for stage in (1, 2, 3):
        for accumulation in (1, 2):
            name = f"scaled, {accumulation}, ZeRO-{stage}"
            add(name, "scaled_for_nothing", settings={"stage": stage}, accumulation=accumulation)
    return launch(jobs)


@pytest.mark.parametrize("stage", STAGES)
def test_an_error_about_a_step_comes_when_deepspeed_has_finished_it(stage: int, answers: Answers) -> None:
    for found in answers[f"error after, ZeRO-{stage}"].each():
        assert found["raised"].startswith("NonFiniteLossError: a loss of the window is infinite or not a number")
        assert found["then"] == {
            "moved": pytest.approx(2.0),
            "micro_steps": 4,
            "global_steps": 2,
            "skipped_steps": 1,
            "open": 0,
            "report": [2, 2, 4, False],
        }


@pytest.mark.parametrize("stage", STAGES)
def test_the_window_after_such_an_error_is_whole(stage: int, answers: Answers) -> None:
    for found in answers[f"error after, ZeRO-{stage}"].each():
        assert found["between"]["open"] == 1 and found["between"]["moved"] == pytest.approx(2.0)
        assert found["last"] == pytest.approx(15.0)
        assert (found["end"]["micro_steps"], found["end"]["report"]) == (6, [3, 2, 4, True])


@pytest.mark.parametrize("more", _MORE)
@pytest.mark.parametrize("stage", [0, 1])
def test_totals_from_before_an_error_are_not_those_of_the_step(stage: int, more: str, answers: Answers) -> None:
    values = [1.0, 3.0, 1.0, *(value for rank in _MORE[more] for value in rank)]
    for found in answers[f"error inside, {more}, ZeRO-{stage}"].each():
        assert found["refused"].startswith("UnevenMicroBatchesError") and found["flushed"]
        assert found["moved"] == pytest.approx(sum(values) / len(values))
        assert found["report"] == [1, len(values) // 2, len(values), True]


def test_totals_that_were_known_when_a_step_failed_are_not_those_of_the_next(answers: Answers) -> None:
    for found in answers["error at the step"].each():
        assert found["refused"].startswith("LossScaleMovedError")
        assert found["told"].startswith("StepOrderError: step 1 went b r b r n u z")
        assert found["report"] == [1, 2, 4, True]


@pytest.mark.parametrize("stage", STAGES)
def test_a_flush_after_the_backward_at_the_boundary_reduces_nothing_again(stage: int, answers: Answers) -> None:
    for found in answers[f"flush after, ZeRO-{stage}"].each():
        assert found["flushed"] and found["reductions"] == (1 if stage < 2 else 2)
        assert found["first"]["moved"] == pytest.approx((1 + 2 + 1 + 4) / 4)
        assert found["first"]["report"] == [1, 2, 4, True] and found["first"]["micro_steps"] % 2 == 0
        assert found["second"]["moved"] == pytest.approx(2.0 + 5.0)
        assert found["second"]["report"] == [2, 2, 4, True]


@pytest.mark.parametrize("stage", STAGES)
def test_a_window_declared_with_fewer_tokens_than_ranks_is_exact_and_silent(stage: int, answers: Answers) -> None:
    for found in answers[f"declared one, ZeRO-{stage}"].each():
        assert found["warnings"] == [] and found["because"] is None
        assert found["moved"] == pytest.approx(4.0) and found["report"] == [1, 1, 1, True]


@pytest.mark.parametrize("stage", STAGES)
def test_a_window_declared_without_a_token_is_skipped_silently(stage: int, answers: Answers) -> None:
    for found in answers[f"declared none, ZeRO-{stage}"].each():
        assert found["warnings"] == [] and found["because"] == "no counted token"
        assert found["moved"] == 0.0 and found["skipped_steps"] == 1


@pytest.mark.parametrize("name", _NOTHING)
def test_a_rank_without_a_micro_batch_takes_part_in_a_step_that_is_only_warned_about(
    name: str, answers: Answers
) -> None:
    for found in answers[f"nothing, {name}"].each():
        assert len(found["warnings"]) == 1 and found["misuses"] == {"UnevenMicroBatchesError": 1}
        assert "0 on rank 1, 1 on rank 0" in found["warnings"][0]
        assert found["refused"] == "nothing" and found["first"]["moved"] == pytest.approx(5.0 + 3.0)
        assert found["first"]["global_steps"] == 2 and found["first"]["skipped_steps"] == 0
        assert found["second"]["moved"] == pytest.approx(5.0 + 3.0 + 5.0)
        assert found["second"]["report"] == [3, 2, 4, True]


@pytest.mark.parametrize("name", _NOTHING_IN_ZERO)
def test_where_such_a_rank_has_no_step_to_take_all_of_them_are_stopped(name: str, answers: Answers) -> None:
    for found in answers[f"nothing, {name}"].each():
        assert found["refused"].startswith("UnevenMicroBatchesError") and "0 on rank 1, 1 on rank 0" in found["refused"]
        assert found["first"]["moved"] == pytest.approx(5.0) and found["first"]["global_steps"] == 1


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_scaled_loss_that_is_never_propagated_back_stops_the_step(stage: int, answers: Answers) -> None:
    for found in answers[f"scaled, 1, ZeRO-{stage}"].each():
        assert found["raised"].startswith(
            "AccumulationError: a loss that engine.scale returned was never propagated back, but its tokens are in the"
        )
        assert found["moved"] == 0.0


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_scaled_loss_that_another_micro_batch_follows_is_missed_among_the_backwards(
    stage: int, answers: Answers
) -> None:
    for found in answers[f"scaled, 2, ZeRO-{stage}"].each():
        assert (
            found["raised"].startswith("StepOrderError: step 1 went b r n ") and "a step of 2 micro-" in found["raised"]
        )


@pytest.mark.parametrize("how", _WARM_UPS)
@pytest.mark.parametrize("stage", STAGES)
def test_a_window_can_be_declared_after_any_forward_that_is_not_propagated_back(
    stage: int, how: str, answers: Answers
) -> None:
    for found in answers[f"warmed up by {how}, ZeRO-{stage}"].each():
        assert found["raised"] == "nothing"
        assert found["moved"] == pytest.approx((50.0 + 10.0) / 2) and found["report"] == [1, 2, 4, True]


@pytest.mark.parametrize("log", [False, True], ids=["", "log"])
@pytest.mark.parametrize("stage", [0, 1])
def test_the_norm_of_a_report_that_nobody_asks_for_is_not_read(stage: int, log: bool, answers: Answers) -> None:
    for rank, found in enumerate(answers[f"report, {log}, ZeRO-{stage}"].each()):
        assert found["norm"] == pytest.approx(6.0) and found["same"]
        # One for each line of the log, which rank 0 writes.
        assert found["reads"] == ([2, 2, 2] if log and rank == 0 else [0, 1, 1])


def test_the_report_does_not_see_a_loss_that_is_overwritten_after_its_backward(answers: Answers) -> None:
    alone = answers["loss left alone"].value()
    assert abs(alone) < 100
    assert answers["loss reduced in place"].value() == alone
