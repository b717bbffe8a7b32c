"""Where DeepSpeed 0.19.8 is wrong, ds-accum is right, or refuses by name; traps that it documents don't catch us, either.

Each loop in `defects.py` runs on both engines. That stock DeepSpeed is wrong is checked in 0.19.8 alone: another
release may not have the bug yet, or no longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pytest
from launch import Answer, Job, launch

try:
    INSTALLED = version("deepspeed")
except PackageNotFoundError:  # every test here is skipped
    INSTALLED = ""
in_the_release_that_was_read = pytest.mark.skipif(
    INSTALLED != "0.19.8", reason="the bugs were read in DeepSpeed 0.19.8"
)

STATIC_SCALE = {"enabled": True, "loss_scale": 1024}
GROWING_SCALE = {"enabled": True, "initial_scale_power": 4, "loss_scale_window": 2, "hysteresis": 1}
AUTOCAST = {"enabled": True, "dtype": "float16"}
WITHOUT_SYNC = {"zero": {"overlap_comm": False}}
UNTOLD = {"block": {"counting": {"shift": False}, "on_misuse": "count"}}
"""The guards would stop both loops: what the step then is, is asked here."""
MESH = {"sequence_parallel_size": 2, "data_parallel_size": 1}

_RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"static scale, ZeRO-{stage}, clipping {clipping}": (
            "steps",
            {"settings": {"stage": stage, "clipping": clipping, "fp16": STATIC_SCALE}},
        )
        for stage in (0, 1)
        for clipping in (0.0, 1.0)
    },
    **{
        f"growing scale, ZeRO-{stage}": ("steps", {"count": 6, "settings": {"stage": stage, "fp16": GROWING_SCALE}})
        for stage in (0, 1, 2, 3)
    },
    "sparse embedding": ("sparse_embedding", {"settings": {"gradient_predivide_factor": 4.0}}),
    **{
        f"predivide, {'contiguous' if contiguous else 'scattered'}": (
            "steps",
            {
                "settings": {
                    "stage": 3,
                    "gradient_predivide_factor": 2.0,
                    "zero": {"reduce_scatter": False, "contiguous_gradients": contiguous},
                }
            },
        )
        for contiguous in (True, False)
    },
    **{
        f"loss and logits, ZeRO-{stage}": ("loss_and_logits", {"settings": {"stage": stage, "accumulation": 4}})
        for stage in (1, 2, 3)
    },
    **{
        f"two forwards, ZeRO-{stage}": (
            "two_forwards_then_two_backwards",
            {"settings": {"stage": stage, "accumulation": 2}},
        )
        for stage in (0, 1, 2, 3)
    },
    **{
        f"no_sync, ZeRO-{stage}": (
            "backwards_without_sync",
            {"settings": {"stage": stage, "accumulation": 4, **WITHOUT_SYNC, **UNTOLD}},
        )
        for stage in (0, 1)
    },
    "no_sync, overlap": ("backwards_without_sync", {"settings": {"stage": 1, "zero": {"overlap_comm": True}}}),
    "autocast": ("overflows_under_autocast", {"settings": {"stage": 1, "torch_autocast": AUTOCAST}}),
    **{
        f"incomplete window, ZeRO-{stage}": ("incomplete_window", {"settings": {"stage": stage, "accumulation": 4}})
        for stage in (0, 1, 2, 3)
    },
    **{f"norm, ZeRO-{stage}": ("steps", {"settings": {"stage": stage, "clipping": 1.0}}) for stage in (0, 1, 2, 3)},
    **{
        f"resized after {at}, ZeRO-{stage}": (
            "resized_in_the_middle",
            {"at": at, "settings": {"stage": stage, "accumulation": 4, **UNTOLD}},
        )
        for stage in (0, 1, 2, 3)
        for at in (2, 4)
    },
    **{
        f"unmanaged, ZeRO-{stage}": (
            "unmanaged",
            {"settings": {"stage": stage, "accumulation": 4, "managed_gradient_accumulation": False, **WITHOUT_SYNC}},
        )
        for stage in (0, 1, 2, 3)
    },
    **{
        f"empty mean, ZeRO-{stage}": ("empty_mean", {"settings": {"stage": stage, "accumulation": 2}})
        for stage in (0, 1)
    },
    **{
        f"round robin, ZeRO-{stage}": (
            "round_robin",
            {"settings": {"stage": stage, "zero": {"round_robin_gradients": stage > 0}}},
        )
        for stage in (0, 1, 2)
    },
    "pipeline": ("clips_a_pipeline", {"settings": {"clipping": 0.01}}),
    **{
        f"first Adam step, {dtype}, {optimizer}": (
            "first_adam_step",
            {"optimizer": optimizer, "settings": {dtype: settings}},
        )
        for dtype, settings in (("bf16", {"enabled": True}), ("fp16", STATIC_SCALE))
        for optimizer in ("adamw", "fused_adam")
    },
    **{
        f"sequence parallel by config, ZeRO-{stage}": (
            "sequence_parallel_by_config",
            {"settings": {"stage": stage, **MESH}},
        )
        for stage in (0, 2)
    },
}

Answers = Mapping[tuple[str, str], Answer]


@pytest.fixture(scope="module")
def answers() -> Answers:
    """What each run came to, by its name and its engine."""
    jobs = [
        Job(name=f"{engine}: {name}", function=f"defects:{function}", arguments={"engine": engine, **arguments})
        for name, (function, arguments) in _RUNS.items()
        for engine in ("stock", "ours")
    ]
    found = launch(jobs)
    return {(engine, name): found[f"{engine}: {name}"] for name in _RUNS for engine in ("stock", "ours")}


# --- ZeRO 0 in fp16: losses are not scaled, gradients are unscaled ----------------------------------------------------


@pytest.mark.parametrize("clipping", [0.0, 1.0])
def test_a_static_loss_scale_leaves_the_update_as_it_is_at_stage_0(clipping: float, answers: Answers) -> None:
    for stage in (0, 1):
        found = answers["ours", f"static scale, ZeRO-{stage}, clipping {clipping}"].value()
        assert found["moved"] == pytest.approx([0.5 if clipping else 1.0], rel=1e-3)
        assert found["norms"] == pytest.approx([2.0], rel=1e-3)


@in_the_release_that_was_read
def test_stock_deepspeed_unscales_at_stage_0_what_it_never_scaled(answers: Answers) -> None:
    assert answers["stock", "static scale, ZeRO-0, clipping 0.0"].value()["moved"] == pytest.approx(
        [1 / 1024], rel=0.01
    )
    # So clipping has nothing to clip.
    assert answers["stock", "static scale, ZeRO-0, clipping 1.0"].value()["moved"] == pytest.approx(
        [1 / 1024], rel=0.01
    )
    assert answers["stock", "static scale, ZeRO-1, clipping 0.0"].value()["moved"] == pytest.approx([1.0], rel=0.01)


# --- fp16: the step on which the loss scale grows ---------------------------------------------------------------------


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_step_on_which_the_loss_scale_grows_is_like_any_other(stage: int, answers: Answers) -> None:
    found = answers["ours", f"growing scale, ZeRO-{stage}"].value()
    assert found["moved"] == pytest.approx([1.0] * 6, rel=1e-3)
    assert found["norms"] == pytest.approx([2.0] * 6, rel=1e-3)


@in_the_release_that_was_read
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_stock_deepspeed_halves_the_update_on_which_the_loss_scale_grows(stage: int, answers: Answers) -> None:
    found = answers["stock", f"growing scale, ZeRO-{stage}"].value()
    assert found["moved"].count(0.5) >= 2 and found["moved"][0] == 1.0
    assert (1.0 in found["norms"]) == (stage == 3)


# --- predividing ------------------------------------------------------------------------------------------------------


def test_a_sparse_embedding_moves_as_far_with_a_predivide_factor(answers: Answers) -> None:
    assert answers["ours", "sparse embedding"].value() == 1.0


@in_the_release_that_was_read
def test_stock_deepspeed_multiplies_sparse_gradients_by_the_predivide_factor(answers: Answers) -> None:
    assert answers["stock", "sparse embedding"].value() == 4.0


@pytest.mark.parametrize("layout", ["contiguous", "scattered"])
def test_a_predivide_factor_that_equals_the_ranks_changes_nothing_at_stage_3(layout: str, answers: Answers) -> None:
    assert answers["ours", f"predivide, {layout}"].value() == {"moved": [1.0], "norms": [2.0]}


@in_the_release_that_was_read
@pytest.mark.parametrize("layout", ["contiguous", "scattered"])
def test_stock_deepspeed_divides_twice_by_a_predivide_factor_that_equals_the_ranks(
    layout: str, answers: Answers
) -> None:
    assert answers["stock", f"predivide, {layout}"].value()["moved"] == [0.5]


# --- backward ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_bare_backward_weighs_a_loss_once_however_many_outputs_there_are(stage: int, answers: Answers) -> None:
    assert answers["ours", f"loss and logits, ZeRO-{stage}"].value() == 1.0


@in_the_release_that_was_read
@pytest.mark.parametrize("stage", [1, 2])
def test_stock_deepspeed_divides_by_the_accumulation_steps_for_every_output(stage: int, answers: Answers) -> None:
    assert answers["stock", f"loss and logits, ZeRO-{stage}"].value() == 0.25


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_two_forwards_before_two_backwards_lose_no_gradient(stage: int, answers: Answers) -> None:
    assert answers["ours", f"two forwards, ZeRO-{stage}"].value() == pytest.approx(5.5)


@in_the_release_that_was_read
def test_stock_deepspeed_overwrites_a_gradient_of_stage_3_after_two_forwards(answers: Answers) -> None:
    assert answers["stock", "two forwards, ZeRO-3"].value() == pytest.approx(5.0)
    assert answers["stock", "two forwards, ZeRO-2"].value() == pytest.approx(5.5)


# --- where a window ends ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [0, 1])
def test_backwards_inside_no_sync_are_weighed_rightly_whenever_the_boundary_comes(stage: int, answers: Answers) -> None:
    # DeepSpeed counts calls of step, so its boundary comes after seven micro-batches; their mean is right all the same.
    found = answers["ours", f"no_sync, ZeRO-{stage}"].value()
    assert found == {"after four": 0.0, "after seven": pytest.approx(1.5)}


@in_the_release_that_was_read
@pytest.mark.parametrize("stage", [0, 1])
def test_stock_deepspeed_takes_seven_fourths_of_a_step_for_them(stage: int, answers: Answers) -> None:
    found = answers["stock", f"no_sync, ZeRO-{stage}"].value()
    assert found == {"after four": 0.0, "after seven": pytest.approx(1.5 * 7 / 4)}


def test_no_sync_is_refused_where_stage_1_would_reduce_inside(answers: Answers) -> None:
    answer = answers["ours", "no_sync, overlap"]
    assert answer.failed
    for error in answer.errors:
        assert error is not None
        assert "AccumulationError: no_sync with ZeRO-1, overlap_comm and 1 accumulation step" in error
        assert "turn overlap_comm off" in error


@in_the_release_that_was_read
def test_stock_deepspeed_fails_in_the_middle_of_it(answers: Answers) -> None:
    errors = answers["stock", "no_sync, overlap"].errors
    assert all("already been reduced" in (error or "") for error in errors)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_flushed_window_is_whole_and_so_is_the_next(stage: int, answers: Answers) -> None:
    said = answers["ours", f"incomplete window, ZeRO-{stage}"].value()
    assert said == [0, 0, 0, 1.0, 1.0] + [0, 0, 0, 1.0] * 2


@in_the_release_that_was_read
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_stock_deepspeed_takes_a_quarter_of_a_step_and_then_three_quarters(stage: int, answers: Answers) -> None:
    said = answers["stock", f"incomplete window, ZeRO-{stage}"].value()
    assert said == [0, 0, 0, 1.0, 0.25, 0, 0, 0.75, 0, 0, 0, 1.0, 0]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_batch_size_set_inside_a_window_or_between_two_changes_no_mean(stage: int, answers: Answers) -> None:
    inside = answers["ours", f"resized after 2, ZeRO-{stage}"].value()
    assert [move for move in inside if move] == pytest.approx([1.0] * 3)
    between = answers["ours", f"resized after 4, ZeRO-{stage}"].value()
    assert between == pytest.approx([0, 0, 0, 1.0, 0, 1.0, 0, 1.0])


@in_the_release_that_was_read
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_stock_deepspeed_takes_one_and_a_half_steps_for_a_window_that_was_resized(stage: int, answers: Answers) -> None:
    assert 1.5 in answers["stock", f"resized after 2, ZeRO-{stage}"].value()


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_an_unmanaged_window_is_the_mean_of_what_came(stage: int, answers: Answers) -> None:
    assert answers["ours", f"unmanaged, ZeRO-{stage}"].value() == pytest.approx(1.0)


@in_the_release_that_was_read
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_stock_deepspeed_divides_an_unmanaged_window_by_what_the_config_says(stage: int, answers: Answers) -> None:
    assert answers["stock", f"unmanaged, ZeRO-{stage}"].value() == pytest.approx(0.75)


# --- what is not finite -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [0, 1])
def test_a_mean_over_nothing_on_one_rank_skips_the_step_on_all(stage: int, answers: Answers) -> None:
    for found in answers["ours", f"empty mean, ZeRO-{stage}"].values:
        assert found == {"finite": True, "moved": 0.0, "skipped": 1}


@in_the_release_that_was_read
def test_stock_deepspeed_writes_a_mean_over_nothing_into_the_weights_of_stage_0(answers: Answers) -> None:
    assert not answers["stock", "empty mean, ZeRO-0"].value()["finite"]


def test_torch_autocast_in_fp16_is_refused(answers: Answers) -> None:
    _is_refused(answers["ours", "autocast"], "torch_autocast in fp16", "torch_autocast.dtype")


@in_the_release_that_was_read
def test_stock_deepspeed_never_recovers_from_an_overflow_under_autocast(answers: Answers) -> None:
    assert answers["stock", "autocast"].value() == 12


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_the_norm_of_a_clipped_gradient_is_reported(stage: int, answers: Answers) -> None:
    assert answers["ours", f"norm, ZeRO-{stage}"].value() == {
        "moved": pytest.approx([0.5]),
        "norms": pytest.approx([2.0]),
    }


@in_the_release_that_was_read
def test_stock_deepspeed_forgets_the_norm_of_stage_0_in_fp32(answers: Answers) -> None:
    assert answers["stock", "norm, ZeRO-0"].value()["norms"] == [None]


# --- parameters and optimizer state -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [1, 2])
def test_round_robin_gradients_train_as_stage_0_does(stage: int, answers: Answers) -> None:
    plain = answers["ours", "round robin, ZeRO-0"].value()
    found = answers["ours", f"round robin, ZeRO-{stage}"].value()
    assert (found["sum"], found["norm"]) == pytest.approx((plain["sum"], plain["norm"]), rel=1e-6)


@in_the_release_that_was_read
@pytest.mark.parametrize("stage", [1, 2])
def test_deepspeeds_look_at_parameters_finds_others_with_round_robin_gradients(stage: int, answers: Answers) -> None:
    for engine in ("stock", "ours"):
        assert answers[engine, f"round robin, ZeRO-{stage}"].value()["off"] > 0.01


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("optimizer", ["adamw", "fused_adam"])
def test_the_first_adam_step_of_stage_0_is_the_first(dtype: str, optimizer: str, answers: Answers) -> None:
    found = answers["ours", f"first Adam step, {dtype}, {optimizer}"].value()
    assert found == {"before": 1.0, "update": pytest.approx(1.0, rel=1e-3)}


@in_the_release_that_was_read
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("optimizer", ["adamw", "fused_adam"])
def test_stock_deepspeed_has_stepped_before_training_begins(dtype: str, optimizer: str, answers: Answers) -> None:
    found = answers["stock", f"first Adam step, {dtype}, {optimizer}"].value()
    assert found["update"] == pytest.approx(0.744, abs=0.01)
    assert found["before"] < 1.0


# --- parallel layouts -------------------------------------------------------------------------------------------------


def test_a_pipeline_is_refused(answers: Answers) -> None:
    _is_refused(answers["ours", "pipeline"], "a pipeline of layers (PipelineModule)")


@in_the_release_that_was_read
def test_stock_deepspeed_clips_a_pipeline_by_its_first_stage_alone(answers: Answers) -> None:
    assert answers["stock", "pipeline"].value() == pytest.approx(2.0, rel=0.01)


@pytest.mark.parametrize("stage", [0, 2])
def test_sequence_parallelism_through_the_config_is_refused(stage: int, answers: Answers) -> None:
    answer = answers["ours", f"sequence parallel by config, ZeRO-{stage}"]
    _is_refused(answer, "sequence parallelism through the config", "sequence_parallel_size")


@in_the_release_that_was_read
@pytest.mark.parametrize("stage", [0, 2])
def test_stock_deepspeed_lets_sequence_parallel_ranks_drift_apart(stage: int, answers: Answers) -> None:
    first, second = answers["stock", f"sequence parallel by config, ZeRO-{stage}"].value()
    assert second == pytest.approx(3 * first)


def _is_refused(answer: Answer, *names: str) -> None:
    assert answer.failed
    for error in answer.errors:
        assert error is not None and "ConfigError: ds_accum.initialize does not take " in error
        assert all(name in error for name in names), error
