"""What training loops are used to, beside forward, backward and step: it is as it was, or says what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from launch import Answer, Job, launch

STAGES = (0, 1, 2, 3)

_SEEN = ("plain", "beside a term", "recomputed", "compiled")
_WAYS = (*_SEEN, "by hand")

Answers = Mapping[str, Answer]


@pytest.fixture(scope="module")
def answers() -> Answers:
    jobs = []

    def add(function: str, stage: int, name: str = "", settings: Mapping[str, Any] | None = None, **more: Any) -> None:
        arguments = {"settings": {"stage": stage, **(settings or {})}, **more}
        jobs.append(Job(name=f"{function} {name}ZeRO-{stage}", function=f"habits:{function}", arguments=arguments))

    for stage in STAGES:
        for function in ("hook_on_the_loss", "forward_ahead", "adagrad"):
            add(function, stage)
        for never in (False, True):
            add("steps_left_out", stage, f"{never} ", never=never)
    for stage in (0, 1, 2):
        add("destroyed", stage)
        for first in (0, 1):
            for scale in (0, 1024):
                add("exceptional_first", stage, f"{first} {scale} ", first=first, scale=scale)
    for stage in (0, 2):
        add("masked", stage)
    for stage in STAGES:
        for dtype in ("fp32", "bf16"):
            for way in _WAYS:
                settings = {"dtype": dtype, "clipping": 100.0}
                add("empty_among", stage, f"{way} {dtype} ", settings=settings, way=way)
    add("empty_among", 0, "beside a term without a norm ", way="beside a term")
    for way in ("plain", "beside a term"):
        add("empty_among", 2, f"{way} fp16 ", settings={"dtype": "fp16"}, way=way)
    add("declared_too_much", 2)
    add("sizes", 1)
    add("several_losses", 3)
    add("noise", 1)
    for takes in (True, False):
        zero = {"compute_grad_norm": takes}
        add("unseen_norm", 2, f"{takes} ", settings={"zero": zero})
    return launch(jobs)


@pytest.mark.parametrize("stage", STAGES)
def test_a_hook_on_the_loss_does_what_it_does_in_stock_deepspeed(stage: int, answers: Answers) -> None:
    for found in answers[f"hook_on_the_loss ZeRO-{stage}"].each():
        assert found["ours"] == found["stock"] == pytest.approx(12.0)


@pytest.mark.parametrize("stage", STAGES)
def test_the_forward_of_the_next_micro_batch_may_come_before_the_step(stage: int, answers: Answers) -> None:
    for found in answers[f"forward_ahead ZeRO-{stage}"].each():
        # The means of (2, 4, 4, 1) and of (1, 5), then 1.
        assert found["moved"] == pytest.approx(11 / 4 + 3.0 + 1.0) and found["tokens"] == 2 * 2


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_destroyed_engine_lets_go_of_its_optimizer_and_its_parameters(stage: int, answers: Answers) -> None:
    for found in answers[f"destroyed ZeRO-{stage}"].each():
        assert found["steps"] == pytest.approx([2.0, 2.0])
        if not stage:
            assert found["left behind"] == [] and found["by hand"] == pytest.approx(6.0)


@pytest.mark.parametrize("stage", STAGES)
def test_adagrad_is_stepped_in_the_right_order_and_watched_where_deepspeed_keeps_it(
    stage: int, answers: Answers
) -> None:
    for found in answers[f"adagrad ZeRO-{stage}"].each():
        # Its first step is the learning rate, its second that over the root of two.
        assert found["steps"] == pytest.approx([0.5, 0.5 / 2**0.5])
        assert found["past"].startswith("SteppedPastEngineError")


def test_a_window_that_can_not_be_applied_is_given_up_by_loading_a_checkpoint(answers: Answers) -> None:
    for found in answers["declared_too_much ZeRO-2"].each():
        said = "AccumulationError: begin_window declared 10 tokens over all ranks, but 12 came; "
        assert found["said"][0].startswith(said) and found["said"][1].startswith(said)
        assert "load_checkpoint gives this window up" in found["said"][0]
        assert found["loaded"] and found["as it was"] and found["tokens"] == 12


@pytest.mark.parametrize("stage", [0, 2])
def test_a_count_is_bounded_by_the_mask_where_that_is_counted(stage: int, answers: Answers) -> None:
    for found in answers[f"masked ZeRO-{stage}"].each():
        assert found["moved"] == pytest.approx(3.0)
        assert found["above"].startswith("CountError: num_tokens is 7, but the batch has 6 places in its loss mask")


def test_a_batch_size_that_is_none_is_refused(answers: Answers) -> None:
    for found in answers["sizes ZeRO-1"].each():
        for said, (name, size) in zip(
            found,
            [(name, size) for name in ("train_batch_size", "micro_batch_size") for size in ("0", "-8", "8.0", "True")],
            strict=True,
        ):
            assert said.startswith(f"ConfigError: {name} is {size}; pass a positive number of samples")


@pytest.mark.parametrize("takes", [True, False])
def test_the_banner_says_where_no_norm_is_taken_that_would_see_a_broken_gradient(takes: bool, answers: Answers) -> None:
    for found in answers[f"unseen_norm {takes} ZeRO-2"].each():
        assert ("not checked: gradients that are not finite" in found["banner"]) is not takes
        assert found["finite"] is takes


@pytest.mark.parametrize("never", [False, True])
@pytest.mark.parametrize("stage", STAGES)
def test_a_loop_that_leaves_steps_out_is_warned_once(stage: int, never: bool, answers: Answers) -> None:
    for found in answers[f"steps_left_out {never} ZeRO-{stage}"].each():
        (said,) = found["warned"]
        assert said.startswith(
            "BoundaryMissedWarning: 4 backwards came without an engine.step(), and gradient_accumulation_steps is 4: "
        )


def test_several_losses_of_a_micro_batch_are_no_loop_that_leaves_steps_out(answers: Answers) -> None:
    """On ZeRO-3, which adds to what it has reduced; on others the second at the boundary is refused."""
    for found in answers["several_losses ZeRO-3"].each():
        assert found["warned"] == [] and found["moved"] == pytest.approx(3.0) and found["tokens"] == 2 * 8


def test_a_model_that_fails_by_itself_is_not_taken_for_a_lost_rank(answers: Answers) -> None:
    answer = answers["noise ZeRO-1"]
    for found in answers["noise ZeRO-1"].each():
        assert found["raised"].startswith("RuntimeError: timed out while waiting for the peer of skip_connection")
        assert found["seconds"] < 2.0
    assert "lost its peers" not in "".join(answer.outputs)


@pytest.mark.parametrize("scale", [0, 1024])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_in_float16_a_first_micro_batch_with_few_tokens_costs_one_step_at_most(
    stage: int, first: int, scale: int, answers: Answers
) -> None:
    for found in answers[f"exceptional_first {first} {scale} ZeRO-{stage}"].each():
        assert found["applied"][1:] == [True] * 5, found
        assert found["moved"] == pytest.approx(sum(found["applied"]) / 1024, rel=1e-2)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_mean_over_no_token_weighs_nothing_whatever_is_around_it(stage: int, dtype: str, answers: Answers) -> None:
    plain = answers[f"empty_among plain {dtype} ZeRO-{stage}"].each()[0]
    for way in _SEEN:
        for found in answers[f"empty_among {way} {dtype} ZeRO-{stage}"].each():
            assert found["applied"], way
            assert found["parameters"] == pytest.approx(plain["parameters"], rel=1e-5 if dtype == "fp32" else 1e-2)
    for found in answers[f"empty_among by hand {dtype} ZeRO-{stage}"].each():
        assert found["skipped because"] == "non-finite loss"


def test_what_can_not_be_seen_is_let_pass_only_where_a_norm_would_tell(answers: Answers) -> None:
    for found in answers["empty_among beside a term without a norm ZeRO-0"].each():
        assert found["skipped because"] == "non-finite loss"
    for found in answers["empty_among beside a term fp16 ZeRO-2"].each():
        assert found["skipped because"] == "non-finite loss" and found["scale is kept"]
    for found in answers["empty_among plain fp16 ZeRO-2"].each():
        assert found["applied"] and found["scale is kept"]
